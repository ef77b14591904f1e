"""Files that are there whole or not at all."""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from worldplan.errors import DataError, RunError


@contextlib.contextmanager
def replacing(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yields a draft beside `path` that takes its name when the block succeeds.

    When the block fails, Ctrl-C included, the draft and folders made for it are deleted and `path` is as
    it was. A killed process leaves at most a hidden ``.tmp`` file of another name.

    Raises:
        DataError: `path` exists and may not be overwritten, or its folder cannot be written to.
        RunError: the disk is full.
    """
    _refuse_existing(path, overwrite)
    draft = path.parent / f".{uuid.uuid4().hex}.tmp"
    made = missing(path.parent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        builtins.open(draft, "xb").close()
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield draft
        _settle(draft)
        _refuse_existing(path, overwrite)
        os.replace(draft, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(f"the disk was full before {path} was complete; nothing is left of it") from error
        raise
    finally:
        draft.unlink(missing_ok=True)
        remove_empty(made)


def require_writable(path: Path, overwrite: bool = False) -> None:
    """Finds out, before hours of work, whether `replacing` will be able to write; leaves no trace.

    Raises:
        DataError: `path` exists and may not be overwritten, or its folder cannot be made or written to.
    """
    path = Path(os.path.abspath(path))
    _refuse_existing(path, overwrite)
    nearest = next(folder for folder in path.parents if os.path.lexists(folder))
    probe = nearest / f".{uuid.uuid4().hex}.tmp"
    try:
        builtins.open(probe, "xb").close()
        probe.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


def missing(folder: Path) -> list[Path]:
    """The folder and its parents, innermost first, as far as they do not exist."""
    return [each for each in (folder, *folder.parents) if not os.path.lexists(each)]


def remove_empty(folders: Sequence[Path]) -> None:
    """Removes those of some folders, innermost first, that hold nothing."""
    for folder in folders:
        with contextlib.suppress(OSError):  # it holds something, and stays
            folder.rmdir()


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"cannot write {path}",
        expected="a folder that exists or can be made, with permission to write",
        found=f"{error.strerror or error}",
        fix="another folder, or chmod u+w on this one",
    )


def _refuse_existing(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise DataError(
            f"{path} is a folder", expected="the path of a file", found="a folder", fix=f"{path / 'data.h5'}"
        )
    if path.exists() and not overwrite:
        raise DataError(
            f"{path} exists already",
            expected="a new file",
            found="an earlier one",
            fix="another path, or overwrite=True",
        )


def _settle(path: Path) -> None:
    # a rename may reach the disk before the bytes do; a power cut must not leave an empty file
    with builtins.open(path, "rb") as file:
        os.fsync(file.fileno())
