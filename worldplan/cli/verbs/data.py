"""``worldplan data``: look at a file of episodes, check it, split it, draw an evaluation set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worldplan.cli import values
from worldplan.cli.arguments import Arguments
from worldplan.errors import ConfigError, UsageError, suggest

KEYS = True
USAGE = "inspect | check | split | evalset  FILE [key=value ...]"


def run_plain(arguments: Arguments) -> int:
    """Runs one of the four; `check` ends with 3 where it finds faults."""
    if not arguments.words or arguments.words[0] not in ACTIONS:
        word = arguments.words[0] if arguments.words else ""
        raise ConfigError(f"data cannot {word!r}", expected=USAGE, fix=suggest(word, ACTIONS))
    if len(arguments.words) < 2:
        raise UsageError(
            f"data {arguments.words[0]} names no file", fix=f"worldplan data {arguments.words[0]} FILE.h5"
        )
    codes = [ACTIONS[arguments.words[0]](path, arguments) for path in arguments.words[1:]]
    return max(codes)


def _inspect(path: str, arguments: Arguments) -> int:
    _options(arguments)
    from worldplan.data import native
    from worldplan.data.inspect import inspect

    found = inspect(native.open(path))
    if arguments.json:
        print(json.dumps(found, allow_nan=False))
    else:
        _print_tree(found)
    return 0


def _check(path: str, arguments: Arguments) -> int:
    _options(arguments)
    from worldplan.data import native
    from worldplan.data.check import check

    faults = check(native.open(path))
    serious = [fault for fault in faults if not fault.warning]
    if arguments.json:
        rows = [
            {"kind": f.kind, "key": f.key, "episode": f.episode, "message": f.message, "warning": f.warning}
            for f in faults
        ]
        print(json.dumps({"path": path, "faults": rows}))
    else:
        print("\n".join(map(str, faults)) if faults else f"{path}: no faults found")
    return 3 if serious else 0


def _split(path: str, arguments: Arguments) -> int:
    from worldplan.data import native
    from worldplan.data.split import split

    options = _options(arguments, held_out=0.1, seed=0)
    train, test = split(native.open(path), held_out=float(options["held_out"]), seed=int(options["seed"]))
    print(json.dumps({"train": [int(i) for i in train], "test": [int(i) for i in test]}))
    return 0


def _evalset(path: str, arguments: Arguments) -> int:
    from worldplan.cli import resolve
    from worldplan.data import evalset, native
    from worldplan.data.atomic import require_writable
    from worldplan.data.split import split

    options = _options(
        arguments,
        "out",
        "env",
        held_out=0.1,
        seed=0,
        pairs=300,
        goal_offset=25,
        budget=50,
        name="",
        overwrite=False,
    )
    out = arguments.references.get("out")
    if not out:
        raise UsageError("data evalset needs a file to write", fix="out=starts.npz")
    overwrite = bool(options["overwrite"])
    require_writable(Path(out), overwrite)
    dataset = native.open(path)
    task = resolve.task(arguments.references.get("env") or str(dataset.attrs.get("env")))
    # held_out=1 takes a file whose episodes no model was trained on
    whole = float(options["held_out"]) >= 1
    test = range(len(dataset)) if whole else split(dataset, held_out=float(options["held_out"]))[1]
    made = evalset.build(
        dataset, test, task, name=str(options["name"] or f"{task.name}-{options['goal_offset']}"),
        num_pairs=int(options["pairs"]), goal_offset=int(options["goal_offset"]),
        budget=int(options["budget"]), seed=int(options["seed"]),
    )  # fmt: skip
    evalset.write(out, made, overwrite=overwrite)
    print(made)
    return 0


def _options(arguments: Arguments, *references: str, **defaults: Any) -> dict[str, Any]:
    found = dict(defaults)
    for key, value in [*_pairs(arguments), *arguments.references.items()]:
        if key in references:
            continue
        if key not in defaults:
            known = [*defaults, *references]
            raise ConfigError(
                f"data {arguments.words[0]} has no key {key!r}",
                expected=f"one of: {', '.join(known)}" if known else "no keys",
                found=f"{key}={value}",
                fix=suggest(key, known) if known else None,
            )
        found[key] = values.parsed(key, value, defaults[key])
    return found


def _pairs(arguments: Arguments) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (word.partition("=") for word in arguments.overrides)]


def _print_tree(value: dict[str, Any], indent: str = "") -> None:
    for key, item in value.items():
        if isinstance(item, dict):
            print(f"{indent}{key}:")
            _print_tree(item, indent + "  ")
        else:
            print(f"{indent}{key}: {item}")


ACTIONS: dict[str, Callable[[str, Arguments], int]] = {
    "inspect": _inspect,
    "check": _check,
    "split": _split,
    "evalset": _evalset,
}
