"""Which classes a checkpoint may name: a table of this process, never a path out of a file."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from worldplan.errors import CheckpointError, ConfigError, WorldplanError, suggest

KEYS = {
    "lewm": "worldplan.models.lewm:LeWM",
    "prefix": "worldplan.models.prefix:FastLeWM",
    "sparse": "worldplan.models.sparse:LpWM",
    "reader": "worldplan.models.reader:Reader",
    "gcbc": "worldplan.models.gcbc:GCBC",
}


def register_key(key: str, target: str) -> None:
    """Lets checkpoints name a class of yours.

    Args:
        key: what ``config.json`` says.
        target: ``module:attribute`` of an ``nn.Module`` with a classmethod
            ``from_config(config: dict, spec: ModelSpec | None)``.

    Raises:
        ConfigError: the key is taken by another class, or one of both is of another form.
    """
    if not re.fullmatch(r"[\w.]+:[\w.]+", target) or not re.fullmatch(r"[\w-]+", key):
        raise ConfigError(
            "this checkpoint key cannot be registered",
            expected="a word, and module:attribute",
            found=f"{key!r}, {target!r}",
        )
    if KEYS.setdefault(key, target) != target:
        raise ConfigError(f"the checkpoint key {key!r} is taken", expected=KEYS[key], found=target)


def check_key(key: str) -> None:
    """Raises `ConfigError` if nothing is registered under `key`."""
    if key not in KEYS:
        raise ConfigError(
            f"unknown checkpoint key {key!r}",
            expected="a key of worldplan, or one registered with checkpoint.register_key",
            found=key,
            fix=suggest(key, KEYS),
        )


def key_of(module: object) -> str:
    """The key under which the class of `module` is registered; raises `ConfigError` without one."""
    kind = type(module)
    for key, target in KEYS.items():
        name, _, attribute = target.partition(":")
        # only a module that is loaded can have made an object, so nothing is imported here
        if name in sys.modules and _attribute(sys.modules[name], attribute) is kind:
            return key
    name = f"{kind.__module__}:{kind.__qualname__}"
    raise ConfigError(
        f"{name} is no registered class",
        expected=", ".join(sorted(KEYS)),
        found=name,
        fix=f'checkpoint.register_key("a_name", "{name}")',
    )


def class_of(key: str, path: Path) -> Any:
    """Imports the class that the file `path` names by `key`.

    Raises:
        CheckpointError: nothing is registered under the key, or it cannot be imported.
    """
    if key not in KEYS:
        raise CheckpointError(
            f"{path} names an unknown class {key!r}",
            expected="a key of this version, or one registered with checkpoint.register_key",
            found=key,
            fix=suggest(key, KEYS),
        )
    name, _, attribute = KEYS[key].partition(":")
    try:
        kind = _attribute(importlib.import_module(name), attribute)
    except WorldplanError:
        raise
    except ImportError as error:
        raise CheckpointError(f"{KEYS[key]}, the class of {key!r}, cannot be imported: {error}") from error
    if not hasattr(kind, "from_config"):
        raise CheckpointError(
            f"{KEYS[key]}, the class of {key!r}, cannot be built",
            expected="a class with from_config(config, spec)",
            found=repr(kind),
        )
    return kind


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module
