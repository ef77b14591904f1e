"""Everything worldplan raises on purpose.

::

    WorldplanError
    ├── UsageError                 wrong use or unusable input; exit code 2
    │   ├── ConfigError            unknown or ill-typed configuration key or name
    │   ├── DataError              a file or episode that cannot be used
    │   ├── CheckpointError        a folder that is not a checkpoint, or not this one
    │   ├── ProtocolMismatch       training, planning and evaluation disagree
    │   └── MissingExtra           an optional package is not installed
    ├── RunError                   it started and could not finish; exit code 1
    │   └── WorkerError            a worker process failed
    └── Verdict                    it ran, and the answer is no; exit code 3

Messages say what was expected, what was found, and what to write instead.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import ClassVar


class WorldplanError(Exception):
    """Root of the tree; `exit_code` is what the command line ends with."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        fix: str | None = None,
    ) -> None:
        """Builds one message from what happened, what was expected, found, and what to do."""
        parts = [message]
        parts += [f"  expected: {expected}"] if expected else []
        parts += [f"  found:    {found}"] if found else []
        parts += [f"  try:      {fix}"] if fix else []
        super().__init__("\n".join(parts))


class UsageError(WorldplanError):
    """Wrong use or unusable input; nothing was run."""

    exit_code = 2


class ConfigError(UsageError):
    """An unknown or ill-typed configuration key or name."""


class DataError(UsageError):
    """A file or an episode that cannot be used."""


class CheckpointError(UsageError):
    """A folder that is not a checkpoint, or not one that fits."""


class ProtocolMismatch(UsageError):
    """Training, planning and evaluation disagree about what they exchange."""


class MissingExtra(UsageError):
    """An optional package is not installed."""


class RunError(WorldplanError):
    """It started and could not finish."""


class WorkerError(RunError):
    """A worker process failed."""


class Verdict(WorldplanError):
    """It ran, and the answer is no."""

    exit_code = 3


def suggest(name: str, known: Iterable[str]) -> str:
    """Says which known names come close to `name`, or lists them all."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(close)}?" if close else f"one of: {', '.join(names)}"


def require(module: str, extra: str, command: str | None = None) -> ModuleType:
    """Imports an optional module, or says which extra brings it.

    Raises:
        MissingExtra: the module is not installed; names the command that installs it. An import
            that fails for another reason keeps its own message in front.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        root = module.partition(".")[0]
        absent = isinstance(error, ModuleNotFoundError) and error.name == root
        raise MissingExtra(
            f"{root} is not installed" if absent else f"{root} is installed but fails to import: {error}",
            expected=f"the optional package {root}",
            fix=command or f'pip install "worldplan[{extra}]"',
        ) from error
