"""Configurations of models: frozen dataclasses that refuse what cannot be meant, and plain mappings.

A checkpoint and the command line hold a configuration as a mapping of plain values; `parse` turns one
into its dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from worldplan.errors import ConfigError, suggest

Config = TypeVar("Config")
Rule = tuple[bool, str]


def parse(kind: type[Config], config: Config | Mapping[str, Any]) -> Config:
    """Builds a configuration from plain values; lists become tuples. One that is built is returned.

    Args:
        kind: a dataclass whose fields all have defaults, which tell their types.
        config: plain values by name.

    Raises:
        ConfigError: a name is unknown or a value has the wrong type.
    """
    if isinstance(config, kind):
        return config
    assert isinstance(config, Mapping), type(config)
    defaults = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    values = {}
    for name, value in config.items():
        if name not in defaults:
            raise ConfigError(
                f"{kind.__name__} has no field {name!r}",
                expected=", ".join(defaults),
                found=repr(name),
                fix=suggest(str(name), defaults),
            )
        values[name] = _typed(kind.__name__, name, value, defaults[name])
    return kind(**values)


def _typed(owner: str, name: str, value: Any, default: Any) -> Any:
    if isinstance(default, tuple) and isinstance(value, list | tuple):
        if all(type(item) is int for item in value):
            return tuple(value)
    elif isinstance(default, float) and type(value) in (int, float):
        return float(value)
    elif type(value) is type(default):
        return value
    wanted = "a list of integers" if isinstance(default, tuple) else f"a value like {default!r}"
    raise ConfigError(f"{name} of {owner} has the wrong type", expected=wanted, found=repr(value))


def check(owner: object, **rules: Rule) -> None:
    """Checks fields of `owner`.

    Args:
        owner: a configuration.
        rules: per field, whether it is fine and what it should be.

    Raises:
        ConfigError: names the first field that is not fine.
    """
    for name, (holds, expected) in rules.items():
        if not holds:
            raise ConfigError(
                f"{name} of {type(owner).__name__} is out of range",
                expected=expected,
                found=repr(getattr(owner, name)),
            )
