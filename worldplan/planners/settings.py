"""Refuses hyper-parameters that cannot be meant, all in the same words."""

from __future__ import annotations

from worldplan.errors import ConfigError

Rule = tuple[bool, str]


def check(owner: object, **rules: Rule) -> None:
    """Checks fields of `owner`.

    Args:
        owner: a dataclass of hyper-parameters.
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
