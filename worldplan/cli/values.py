"""Values of a configuration, checked once and for every verb against the packaged defaults.

A whole number stays a whole number and a truth value stays one; a number may be written without its
point; ``null`` as the default accepts anything, or a number where `NULLABLE` says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from worldplan.errors import ConfigError, suggest

# counts of which there must be one at least; every other whole number may be zero
COUNTS = frozenset(
    "episodes plan_episodes rank_episodes steps num_envs image_size threads frames batch_size pairs budget"
    " goal_offset execute horizon num_samples num_iterations num_elites".split()
)
SIGNED = frozenset({"seed"})
POSITIVE = frozenset({"train_seconds", "max_seconds", "deadline_seconds", "held_out"})
NULLABLE: Mapping[str, type] = {"execute": int, "max_seconds": float, "deadline_seconds": float}
WORDS: Mapping[str, tuple[str, ...]] = {"trackers": ("csv", "jsonl", "tensorboard", "wandb")}
_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "text", list: "a list"}


def check(config: Mapping[str, Any], defaults: Mapping[str, Any], path: str = "") -> None:
    """Compares every value with the default of its key; keys without a default are left alone.

    Raises:
        ConfigError: names the key, what it takes and what it was given.
    """
    for key, value in config.items():
        default = defaults.get(key)
        if default == "???":
            continue
        if not isinstance(default, dict):
            one(f"{path}{key}", value, default)
        elif isinstance(value, Mapping):
            check(value, defaults_of(key, value) if "_target_" in value else default, f"{path}{key}.")
        else:
            raise _ungrouped(f"{path}{key}", key, value)


def one(key: str, value: Any, default: Any) -> None:
    """Checks one value against its default.

    Raises:
        ConfigError: it is of another kind, not finite, or too small.
    """
    name = key.rpartition(".")[2]
    kind = type(default) if default is not None else NULLABLE.get(name)
    if kind is None or (default is None and value is None):
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = (
        number and (kind is float or isinstance(value, int)) if kind in (int, float) else type(value) is kind
    )
    if not fits or (number and not math.isfinite(value)):
        whole = number and math.isfinite(value) and value == int(value)
        raise ConfigError(
            f"{key} must be {_NAMES.get(kind, kind.__name__)}",
            expected=f"{_NAMES.get(kind, kind.__name__)}, as in {key}={_shown(default)}"
            if default is not None
            else f"{_NAMES[kind]}, or null",
            found=repr(value),
            fix=f"{key}={int(value)}" if whole and kind is int else None,
        )
    if name in WORDS and (strange := [each for each in value if each not in WORDS[name]]):
        raise ConfigError(
            f"{key} cannot hold {strange[0]!r}",
            expected=f"any of: {', '.join(WORDS[name])}",
            found=_shown(value),
            fix=suggest(str(strange[0]), WORDS[name]),
        )
    least = 1 if name in COUNTS else 0
    if (kind is int and name not in SIGNED and value < least) or (name in POSITIVE and value <= 0):
        few = "above 0" if name in POSITIVE else f"of {least} or more"
        raise ConfigError(f"{key} is too small", expected=f"{_NAMES[kind]} {few}", found=repr(value))


def parsed(key: str, text: str, default: Any) -> Any:
    """A word of the command line as a value like `default`, for verbs without a configuration.

    Raises:
        ConfigError: it is of another kind, not finite, or too small.
    """
    import yaml

    try:
        value = text if isinstance(default, str) else yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    if isinstance(value, str) and isinstance(default, float):
        try:
            value = float(text)  # YAML takes 1e-3 for text
        except ValueError:
            pass
    one(key, value, default)
    return value


def defaults(verb: str) -> dict[str, Any]:
    """The packaged configuration of a verb, each group with its default choice in place."""
    raw = dict(_read(f"{verb}.yaml"))
    for entry in raw.pop("defaults", []):
        for group, choice in entry.items() if isinstance(entry, dict) else ():
            raw[group] = dict(_read(f"{group}/{choice}.yaml"))
    return raw


def split_defaults(raw: str) -> tuple[dict[str, str], list[str]]:
    """What a configuration chooses of each group, and its lines without that block and empty ones."""
    import yaml

    listed = yaml.safe_load(raw).get("defaults", [])
    chosen = {
        group: str(name) for entry in listed if isinstance(entry, dict) for group, name in entry.items()
    }
    lines, inside = [], False
    for line in raw.splitlines():
        inside = line.startswith("defaults:") or (inside and line.startswith((" ", "-")))
        if line.strip() and not inside:
            lines.append(line)
    return chosen, lines


def defaults_of(group: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The packaged values of a chosen configuration, by its class; of several, together."""
    found: dict[str, Any] = {}
    for name in choices(group):
        packaged = _read(f"{group}/{name}.yaml")
        if packaged.get("_target_") == chosen.get("_target_"):
            found |= packaged
    return found


def choices(group: str) -> list[str]:
    """Names of the packaged configurations of a group; none where there is no such group."""
    folder = resources.files("worldplan.configs") / group
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(name[:-5] for name in names if name.endswith(".yaml"))


def unknown_choice(group: str, name: str) -> ConfigError:
    """The error of a name that a group of configurations does not have."""
    known = choices(group)
    return ConfigError(
        f"unknown {group} {name!r}",
        expected=f"one of: {', '.join(known)}",
        found=f"{group}={name}",
        fix=suggest(name, known),
    )


@cache
def _read(path: str) -> dict[str, Any]:
    import yaml

    raw = (resources.files("worldplan.configs") / path).read_text(encoding="utf-8")
    values: dict[str, Any] = yaml.safe_load(raw)
    return values


def _ungrouped(path: str, key: str, value: Any) -> ConfigError:
    if choices(key):
        return unknown_choice(key, str(value))
    return ConfigError(f"{path} is a group of keys", expected=f"{path}.KEY=value", found=repr(value))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_shown, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
