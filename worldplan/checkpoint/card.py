"""The card of a checkpoint: what ``config.json`` says, for people and for the hub's search."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_ESTIMATE = {"value", "low", "high", "n", "method"}
_MOST = 16  # entries of a list that are shown


def card_text(manifest: Mapping[str, Any], prose: str = "") -> str:
    """``README.md``: tags for the hub, `prose`, how to load it, and every recorded fact.

    Args:
        manifest: content of ``config.json``.
        prose: what only a person can say: what it is good for, and what it is not.
    """
    env = (manifest["spec"] or {}).get("env")
    tags = ["worldplan", "world-model", manifest["key"], *([json.dumps(env)] if env else [])]
    title = f"{manifest['key']} for {env}" if env else manifest["key"]
    lines = [
        "---",
        "library_name: worldplan",
        "tags:",
        *(f"- {tag}" for tag in tags),
        "---",
        f"# {title}",
        "",
    ]
    lines += [prose.strip(), ""] if prose.strip() else []
    lines += [
        "```python",
        "from worldplan import checkpoint",
        "",
        'model = checkpoint.from_pretrained("this folder, or user/repo")',
        "```",
        "",
    ]
    weights = manifest["weights"]
    size = f"{weights['parameters']:,} parameters, {weights['bytes'] / 1e6:.2f} MB"
    stored = f", stored as {weights['dtype']}" if weights["dtype"] else ""
    lines += [f"{size}{stored}, sha256 `{weights['sha256'][:12]}`.", ""]
    for heading, name in (
        ("Result", "result"),
        ("How it was measured", "protocol"),
        ("Training", "training"),
        ("What it is fed", "spec"),
        ("Architecture", "config"),
    ):
        known = manifest[name]
        if name == "training" and isinstance(known, Mapping) and known.get("model") == manifest["config"]:
            known = {key: value for key, value in known.items() if key != "model"}  # stands below
        facts = list(_facts(known, ""))
        lines += [f"## {heading}", "", *facts, ""] if facts else []
    return "\n".join(lines)


def _facts(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value.keys() >= _ESTIMATE:
        yield f"- {path}: {_estimate(value)}"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _facts(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _facts(item, f"{path}[{index}]")
    elif value is not None and value not in ("", [], {}):
        shown = _shown(value)
        yield f"- {path}: `{shown}`" if path else f"- `{shown}`"


def _shown(value: Any) -> str:
    """On one line; numbers to six digits, long lists by their ends."""
    if isinstance(value, list) and len(value) > _MOST:
        return f"{len(value)} entries, {value[0]} to {value[-1]}; all of them are in config.json"
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())


def _estimate(value: Mapping[str, Any]) -> str:
    if value["value"] is None:
        return f"undefined (n = {value['n']})"
    has_interval = value["low"] is not None and value["high"] is not None
    interval = f" [{value['low']:.4g}, {value['high']:.4g}]" if has_interval else ""
    return f"{value['value']:.4g}{interval} (n = {value['n']}, {value['method']})"
