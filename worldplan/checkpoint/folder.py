"""The three files of a checkpoint: written whole or not at all, read as data."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from worldplan.errors import CheckpointError, RunError

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
FORMAT, VERSION = "worldplan-checkpoint", 1
_PICKLES = ("*.pt", "*.pth", "*.bin", "*.ckpt", "*.pkl")


def write(folder: Path, files: Mapping[str, bytes], overwrite: bool) -> Path:
    """Writes the files beside `folder` and gives them its name when all of them are on disk.

    A folder that is replaced steps aside for the moment between two renames; the operating system
    offers no single one. A killed process leaves at most a hidden ``.tmp`` folder beside it.

    Raises:
        CheckpointError: the folder is taken, or cannot be written to.
        RunError: the disk is full.
    """
    target = Path(os.path.realpath(folder))  # a link stays a link
    _refuse_taken(target, overwrite)
    draft = target.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        for name, data in files.items():
            _put(draft / name, data)
        _settle(draft)
        _refuse_taken(target, overwrite)
        _swap(draft, target)
        _settle(target.parent)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                f"the disk was full before {folder} was complete; nothing is left of it"
            ) from error
        raise CheckpointError(
            f"cannot write the checkpoint {folder}",
            expected="a folder that exists or can be made, with permission to write",
            found=f"{error.strerror or error}",
            fix="another folder, or chmod u+w on the one around it",
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def read(folder: Path) -> dict[str, Any]:
    """The content of ``config.json``, once it is known to be ours and complete.

    Raises:
        CheckpointError: the folder is not a checkpoint, is damaged, or is newer than this version.
    """
    _refuse_other(folder)
    path = folder / CONFIG
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read", found=str(error)) from error
    except json.JSONDecodeError as error:
        found = "an empty file" if not path.stat().st_size else f"line {error.lineno}: {error.msg}"
        raise CheckpointError(
            f"{path} is damaged", expected="JSON", found=found, fix="copy or download it again"
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = ", ".join(sorted(manifest)[:8]) if isinstance(manifest, dict) else type(manifest).__name__
        raise CheckpointError(
            f"{folder} is a checkpoint of another library",
            expected=f'"format": "{FORMAT}" in {CONFIG}',
            found=found or "no keys",
        )
    if manifest.get("version") != VERSION:
        raise CheckpointError(
            f"{folder} has another version of the format",
            expected=str(VERSION),
            found=str(manifest.get("version")),
            fix="pip install --upgrade worldplan",
        )
    _refuse_incomplete(folder, manifest)
    return manifest


def plain(value: Any, path: str) -> Any:
    """Turns dataclasses, mappings, sequences, paths and NumPy values into what JSON holds.

    Raises:
        CheckpointError: something else is inside; says where.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist(), path)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        pairs: Any = {field.name: getattr(value, field.name) for field in fields(value)}
        return plain(pairs, path)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise CheckpointError(
        f"{path} cannot be stored in {CONFIG}",
        expected="finite numbers, words, lists, mappings with words as keys, dataclasses, None",
        found=repr(value)[:100],
    )


def _put(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _settle(folder: Path) -> None:
    # a rename is safe against a power cut once the folder around it is on disk; Windows has no such call
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _swap(draft: Path, target: Path) -> None:
    if not target.exists():
        os.rename(draft, target)
        return
    aside = target.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        os.rename(target, aside)
        os.rename(draft, target)
    except BaseException:
        if aside.exists() and not target.exists():
            os.rename(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _refuse_taken(target: Path, overwrite: bool) -> None:
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise CheckpointError(f"{target} is a file", expected="a folder to write", fix=f"{target}-checkpoint")
    there = sorted(path.name for path in target.iterdir())
    strange = [name for name in there if name not in (CONFIG, WEIGHTS, CARD)]
    if strange:
        # replacing the folder would delete them
        raise CheckpointError(
            f"{target} holds files that are no checkpoint's",
            expected=f"a new folder, or one with {CONFIG}, {WEIGHTS} and {CARD} only",
            found=", ".join(strange[:5]) + (f" and {len(strange) - 5} more" if len(strange) > 5 else ""),
            fix=str(target / "checkpoint"),
        )
    if there and not overwrite:
        raise CheckpointError(
            f"{target} exists already", expected="a new folder", fix="another folder, or overwrite=True"
        )


def _refuse_other(folder: Path) -> None:
    if (folder / CONFIG).is_file():
        return
    wanted = f"a folder with {CONFIG} and {WEIGHTS}"
    if folder.is_file():
        whole = folder.parent if (folder.parent / CONFIG).is_file() else None
        raise CheckpointError(
            f"{folder} is a file", expected=wanted, found="a file", fix=f"{whole}" if whole else None
        )
    near = [path.parent for path in sorted(folder.glob(f"*/{CONFIG}"))]
    near += [folder.parent] if (folder.parent / CONFIG).is_file() else []
    there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    raise CheckpointError(
        f"{folder} is not a checkpoint",
        expected=wanted,
        found=", ".join(there[:6]) or ("an empty folder" if folder.is_dir() else "nothing"),
        fix=f"did you mean {' or '.join(map(str, near[:3]))}?" if near else None,
    )


def _refuse_incomplete(folder: Path, manifest: Mapping[str, Any]) -> None:
    parts = {"key": str, "config": dict, "weights": dict}
    wrong = [name for name, kind in parts.items() if not isinstance(manifest.get(name), kind)]
    wrong += [name for name in ("spec", "protocol", "training", "result") if name not in manifest]
    if wrong or not {"bytes", "sha256"} <= manifest["weights"].keys():
        raise CheckpointError(
            f"{folder / CONFIG} is incomplete",
            expected="key, config, spec, protocol, training, result, weights",
            found=f"nothing usable under {', '.join(wrong) or 'weights'}",
        )
    path = folder / WEIGHTS
    if not path.is_file():
        pickles = [found.name for pattern in _PICKLES for found in folder.glob(pattern)]
        raise CheckpointError(
            f"{folder} has no weights",
            expected=WEIGHTS,
            found=f"{', '.join(pickles)}, which would run code when loaded" if pickles else "none",
            fix="copy or download the whole folder again",
        )
    if path.stat().st_size != manifest["weights"]["bytes"]:
        raise CheckpointError(
            f"{path} is damaged or incomplete",
            expected=f"{manifest['weights']['bytes']} bytes",
            found=f"{path.stat().st_size} bytes",
            fix="copy or download it again",
        )
