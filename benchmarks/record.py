"""The form all results share: a JSON file of cases, each with measures, from which the table is made.

::

    {"benchmark": ..., "quick": ..., "machine": {...}, "setting": {...},
     "cases": [{"case": ..., "repeats": n, "measures": {"seconds per step": {"median", "q1", "q3"}, ...}},
               {"case": ..., "error": why it could not be measured}]}

A measure is a median with quartiles, or a plain number where there is only one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine


def digits(value: float, significant: int = 4) -> float:
    """Rounded to significant digits: more would claim what was not measured."""
    return float(f"{value:.{significant}g}")


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of repeats."""
    low, middle, high = np.percentile(np.asarray(values, float), (25, 50, 75))
    return {"median": digits(middle), "q1": digits(low), "q3": digits(high)}


def case(name: str, repeats: int, **measures: Any) -> dict[str, Any]:
    """One line of the table; underscores in the names of measures become spaces."""
    told = {key.replace("_", " "): value for key, value in measures.items()}
    return {"case": name, "repeats": repeats, "measures": told}


def parser(about: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    options = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="smoke sizes: shows that it runs, no more")
    options.add_argument("--out", type=Path, help="JSON file to write")
    return options


def finish(
    name: str,
    options: argparse.Namespace,
    setting: Mapping[str, Any],
    cases: Sequence[Mapping[str, Any]],
) -> None:
    """Prints a result, and writes it where asked."""
    result = {
        "benchmark": name,
        "quick": bool(options.quick),
        "machine": machine.facts(),
        "setting": dict(setting),
        "cases": list(cases),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n", encoding="utf-8")
