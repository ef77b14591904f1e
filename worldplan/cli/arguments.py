"""Splits the words of a command into flags, configuration keys and references.

References are the keys whose values name things outside the configuration: a checkpoint, a data file,
an environment, a policy. Hydra's grammar would stumble over many legal paths, so it never sees them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from worldplan.errors import ConfigError, suggest

REFERENCES = (
    "model",
    "scorer",
    "reader",
    "policy",
    "policies",
    "env",
    "data",
    "real",
    "out",
    "starts",
    "resume_from",
)
_KEY = re.compile(r"(\+{1,2}|~)?[A-Za-z_][\w.@]*(/\w+)*=")  # a path may hold an equals sign as well
FLAGS = ("--help", "--json", "--quiet", "--dry-run", "--traceback", "--cfg", "--multirun")


@dataclass(frozen=True)
class Arguments:
    """The words of one command.

    Attributes:
        overrides: ``key=value`` words for Hydra, as written.
        references: key -> text of the values that name things.
        words: words without ``=``.
    """

    overrides: tuple[str, ...] = ()
    references: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    help: bool = False
    json: bool = False
    quiet: bool = False
    dry_run: bool = False
    cfg: bool = False
    multirun: bool = False
    config_dir: str | None = None


def parse(words: Sequence[str]) -> Arguments:
    """Sorts words; raises `ConfigError` on an unknown flag."""
    flags: dict[str, bool] = {}
    overrides: list[str] = []
    references: dict[str, str] = {}
    plain: list[str] = []
    config_dir = None
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if word == "--config-dir" or word.startswith("--config-dir="):
            _, equals, value = word.partition("=")
            if not equals and not remaining:
                raise ConfigError("--config-dir names no folder", fix="--config-dir FOLDER")
            config_dir = value if equals else remaining.pop(0)
        elif word in ("-h", *FLAGS):
            flags["help" if word == "-h" else word[2:].replace("-", "_")] = True
        elif word.startswith("--"):
            raise ConfigError(
                f"unknown flag {word}", fix=suggest(word, (*FLAGS, "--config-dir", "--version"))
            )
        elif _KEY.match(word) and not os.path.exists(word):
            key, _, value = word.partition("=")
            if key in REFERENCES:
                references[key] = value
            else:
                overrides.append(word)
        else:
            plain.append(word)
    flags.pop("traceback", None)
    return Arguments(tuple(overrides), references, tuple(plain), config_dir=config_dir, **flags)


def listed(text: str) -> list[str]:
    """Splits ``[a,b,c]`` or ``a,b,c`` at commas outside brackets; items are stripped, not unquoted."""
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    items, depth, item = [], 0, ""
    for letter in inner:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            items.append(item.strip())
            item = ""
        else:
            item += letter
    return [each for each in [*items, item.strip()] if each]
