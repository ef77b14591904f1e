"""The output folder of a run: made, cleared where asked, and unmade where nothing was written."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from worldplan.data.atomic import missing, remove_empty
from worldplan.errors import UsageError

CONFIG, RESULT = "config.json", "result.json"


@contextmanager
def prepare(config: Mapping[str, Any], verb: str, leftovers: Sequence[str] = ()) -> Iterator[Path]:
    """Makes the output folder, and unmakes it where the run fails before it wrote anything.

    A folder that holds something is refused unless told otherwise. With ``overwrite=true`` the files
    and folders that the verb itself writes are cleared, and nothing else. They are put aside until the
    new run has written something, so a mistyped name costs no earlier result.

    Args:
        config: ``out``, and ``overwrite`` or ``resume`` where the verb has them.
        verb: names a folder below ``runs`` where `config` names none.
        leftovers: what the verb writes, besides its configuration and its result.
    """
    out = _folder(config, verb)
    overwrite, resume = bool(config.get("overwrite")), bool(config.get("resume"))
    if overwrite and resume:
        raise UsageError(
            "resume and overwrite contradict each other",
            expected="resume=true to go on, or overwrite=true to begin again",
            found="both",
        )
    if out.is_dir() and any(out.iterdir()) and not overwrite and not resume:
        raise UsageError(
            f"out={out} is not empty",
            expected="a new or empty folder",
            found=f"{len(list(out.iterdir()))} entries",
            fix=f"another out, or {'resume=true, or ' if 'resume' in config else ''}overwrite=true",
        )
    made = missing(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(13, "no write permission", str(out))
        aside = _put_aside(out, (CONFIG, RESULT, *leftovers) if overwrite else (CONFIG,))
    except OSError as error:
        remove_empty(made)
        raise UsageError(
            f"out={out} cannot be written to",
            expected="a folder that exists or can be made, with permission to write",
            found=str(error.strerror or error),
            fix="another out, or chmod u+w on this one",
        ) from error
    before = set(os.listdir(out))
    try:
        yield out
    except BaseException:
        if set(os.listdir(out)) <= {*before, CONFIG}:
            (out / CONFIG).unlink(missing_ok=True)
            for path in aside.iterdir() if aside else ():
                os.replace(path, out / path.name)
        raise
    finally:
        if aside:
            shutil.rmtree(aside, ignore_errors=True)
        remove_empty(made)


def _folder(config: Mapping[str, Any], verb: str) -> Path:
    if not config["out"]:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        names = (f"{verb}-{stamp}{f'-{number}' if number else ''}" for number in itertools.count())
        return next(path for path in (Path("runs").absolute() / name for name in names) if not path.exists())
    out = Path(os.path.abspath(str(config["out"])))
    if out.exists() and not out.is_dir():
        raise UsageError(f"out={out} is a file", expected="a folder", found="a file", fix="another out")
    return out


def _put_aside(out: Path, names: Sequence[str]) -> Path | None:
    there = [out / name for name in names if os.path.lexists(out / name)]
    if not there:
        return None
    aside = Path(tempfile.mkdtemp(prefix=".earlier-", dir=out))
    for path in there:
        os.replace(path, aside / path.name)
    return aside
