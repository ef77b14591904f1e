"""The Markdown table of results, made from their JSON files alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HEAD = """# Measured speed

Made by `python -m benchmarks --table` from the JSON files beside this one; see `docs/benchmarks.md` for
what is measured. A cell is the median of the repeats with its quartiles in brackets, or a single number.
"""
TITLES = {
    "windows": "Windows from disk",
    "envs": "Environment steps",
    "planning": "CEM decisions",
    "training": "Training steps",
}


def write(folder: Path) -> Path:
    """Writes ``README.md`` into a folder of results.

    Raises:
        SystemExit: the folder holds none.
    """
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    if not found:
        raise SystemExit("there are no results to make a table from: run python -m benchmarks first")
    order = list(TITLES)
    found.sort(key=lambda result: (order + [result["benchmark"]]).index(result["benchmark"]))
    target = folder / "README.md"
    target.write_text("\n".join([HEAD, *map(section, found)]), encoding="utf-8")
    return target


def section(result: Mapping[str, Any]) -> str:
    """Heading, machine, setting and table of one benchmark."""
    name, machine, cases = result["benchmark"], result["machine"], result["cases"]
    lines = [f"## {TITLES.get(name, name)}", ""]
    if result.get("quick"):
        lines += ["**Smoke sizes: these numbers show that the benchmark runs and measure nothing.**", ""]
    threads = f"{machine['threads']} thread{'s' if machine['threads'] != 1 else ''}"
    lines += [
        f"{machine['cpu']}, {machine['cores']} cores, {threads}; Python {machine['python']}, "
        f"PyTorch {machine['torch']}; {machine['date']}; load average at the end {machine['load_average']}",
        "",
        "; ".join(f"{key.replace('_', ' ')} {said(value)}" for key, value in result["setting"].items()),
        "",
    ]
    columns = list(dict.fromkeys(key for each in cases for key in each.get("measures", {})))
    lines += [row(["", *columns, "repeats"]), row(["---", *["---:"] * (len(columns) + 1)])]
    lines += [row(cells(each, columns)) for each in cases]
    return "\n".join([*lines, ""])


def cells(case: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """The cells of one case; a case that was not measured says why in the first."""
    if "error" in case:
        return [f"{case['case']}: not measured, {case['error']}", *["—"] * (len(columns) + 1)]
    return [case["case"], *(cell(case["measures"].get(key)) for key in columns), str(case["repeats"])]


def cell(value: Any) -> str:
    """A median with quartiles, a number, or a dash where there is none."""
    if value is None:
        return "—"
    if isinstance(value, Mapping):
        return f"{number(value['median'])} [{number(value['q1'])}, {number(value['q3'])}]"
    return number(value)


def said(value: Any) -> str:
    """A setting in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {said(each)}" for key, each in value.items())
    if isinstance(value, list):
        return " x ".join(said(each) for each in value)
    return number(value) if isinstance(value, int | float) else str(value)


def number(value: float) -> str:
    """Thousands apart, small numbers with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def row(entries: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(entry.replace("|", "\\|") for entry in entries) + " |"
