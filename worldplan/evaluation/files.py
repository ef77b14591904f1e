"""Files that are either whole or absent, and values that are valid JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from worldplan.data.atomic import replacing
from worldplan.errors import DataError


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """Writes a whole file, replacing the one that is there.

    Raises:
        DataError: the folder cannot be made or written; nothing is left behind.
    """
    target = Path(path)
    with replacing(target, overwrite=True) as draft:
        draft.write_bytes(data)
    return target


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Writes UTF-8 text as `write_bytes` does."""
    # a path with undecodable bytes holds lone surrogates; escaped, they are legal in JSON too
    return write_bytes(path, text.encode("utf-8", "backslashreplace"))


def read_text(path: str | os.PathLike[str]) -> str:
    """Reads UTF-8 text, with or without a byte order mark.

    Raises:
        DataError: the file is absent, unreadable, or not text.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(
            f"cannot read {os.fspath(path)}", expected="a UTF-8 text file", found=reason
        ) from error


def plain(value: Any, where: str = "value") -> Any:
    """Turns a value into plain JSON: NumPy becomes Python, numbers that are not finite become None.

    Raises:
        DataError: something JSON cannot hold; `where` names it.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.generic):
        return plain(value.item(), where)
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), where)
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise DataError(
        f"{where} cannot be written as JSON",
        expected="text, numbers, lists and mappings of them, or None",
        found=type(value).__name__,
    )


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON text that never holds NaN; one line unless indented."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)
