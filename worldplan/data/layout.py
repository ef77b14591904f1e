"""The layout of the native file, and what is wrong with one that does not follow it.

A flat HDF5 file, column by column as stable-worldmodel writes it: one row per *observation*, all
episodes one after the other.

=================  ==========================================================================
``ep_len``         int32 ``[E]``, observations of each episode, T+1
``ep_offset``      int64 ``[E]``, first row of each episode
``action``         ``[rows, a]``; row t led from row t to row t+1; an episode's last row is NaN
                   (-1 for integer actions): nothing follows it
``reward``         ``[rows]``, on the row *reached*; an episode's first row is NaN
``terminated``     bool ``[rows]``, True on the row that ended the task; likewise ``truncated``
``success``        int8 ``[rows]``: 1 on the last row of a success, 0 elsewhere; -1: not known
``step_idx``       int32 ``[rows]``, 0..T; ``episode_idx`` int32 ``[rows]``
anything else      an observation; images are uint8 ``[rows, h, w, 3]``, one row per chunk
=================  ==========================================================================

The root attribute ``worldplan`` is JSON about the file, ``worldplan_episodes`` a JSON list with the
`meta` of each episode. Files without them are read just the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from worldplan.errors import DataError, require
from worldplan.types import Array

VERSION = 1
INDEX = ("ep_len", "ep_offset")
BOOKKEEPING = (
    "action", "reward", "terminated", "truncated", "success", "step_idx", "episode_idx", "ep_idx",
)  # fmt: skip
FILE_ATTRIBUTE, EPISODES_ATTRIBUTE, KEY_ATTRIBUTE = "worldplan", "worldplan_episodes", "key"


@dataclass(frozen=True)
class Column:
    """One column of a file.

    Attributes:
        key: what it is called here, e.g. ``"goal/pixels"``.
        name: what it is called in the file, where a slash would make a group.
        shape: shape of one row.
        dtype: of the values; ``object`` for text, which is read as `str`.
        text: whether it holds text.
        chunk_rows: rows that are read from disk together.
    """

    key: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    text: bool
    chunk_rows: int

    @property
    def is_image(self) -> bool:
        """Whether rows are images as they should be: uint8, ``[h, w, 3]``."""
        return self.dtype == np.uint8 and len(self.shape) == 3 and self.shape[-1] == 3

    @property
    def row_bytes(self) -> int:
        """Bytes of one decoded row."""
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Layout:
    """What a file says about itself: columns by key, episodes, and its two JSON attributes."""

    columns: Mapping[str, Column]
    lengths: Array
    offsets: Array
    attrs: Mapping[str, Any]
    episodes: Sequence[Mapping[str, Any]]
    rows: int


def image_fault(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str | None:
    """Says what is wrong with rows that look like an image but are none, or None."""
    if len(shape) != 3:
        return None
    first, last = shape[0] in (1, 3, 4), shape[-1] in (1, 3, 4)
    if not (first or last):
        return None
    if dtype.kind == "f" and 3 in (shape[0], shape[-1]):
        return f"float images {dtype} {list(shape)}"
    if dtype == np.uint8 and first and not last:
        return f"channels-first images {list(shape)}"
    if dtype == np.uint8 and shape[-1] == 4:
        return f"images with an alpha channel {list(shape)}"
    return None


def not_finite(values: Array) -> Array:
    """Which rows of ``values [T, ...]`` hold a NaN or an infinity, bool ``[T]``."""
    if values.dtype.kind != "f":
        return np.zeros(len(values), bool)
    return np.asarray(~np.isfinite(values).all(axis=tuple(range(1, values.ndim))))


def read(file: h5py.File, path: Path) -> Layout:
    """Reads and validates the layout of an open file; reads no rows.

    Raises:
        DataError: names the file and the key or episode that does not fit.
        MissingExtra: a column is compressed with a filter that hdf5plugin brings.
    """
    missing = [name for name in INDEX if name not in file]
    if missing:
        raise DataError(
            f"{path} is not a native data file: no {' and no '.join(missing)}",
            expected="columns at the root, with ep_len and ep_offset",
            found=_looks_like(file),
        )
    columns = dict(_column(name, item, path) for name, item in file.items() if name not in INDEX)
    lengths, offsets = (np.asarray(file[name][...], np.int64) for name in INDEX)
    _validate(path, columns, {c.key: file[c.name].shape[0] for c in columns.values()}, lengths, offsets)
    rows = file[next(iter(columns.values())).name].shape[0]
    attrs = _json(file, FILE_ATTRIBUTE, {}, path)
    episodes = _json(file, EPISODES_ATTRIBUTE, [], path)
    if episodes and len(episodes) != len(lengths):
        raise DataError(
            f"{path}: {EPISODES_ATTRIBUTE!r} does not match the episodes",
            expected=f"{len(lengths)} entries, as in ep_len",
            found=f"{len(episodes)}",
        )
    return Layout(columns, lengths, offsets, attrs, episodes, int(rows))


def _column(name: str, item: Any, path: Path) -> tuple[str, Column]:
    if not isinstance(item, h5py.Dataset) or not item.shape:
        raise DataError(
            f"{path}: {name!r} is not a column",
            expected="one row per observation",
            found="a group" if isinstance(item, h5py.Group) else f"shape {getattr(item, 'shape', None)}",
        )
    _require_filters(item, path)
    key = str(item.attrs.get(KEY_ATTRIBUTE, name))
    text = h5py.check_string_dtype(item.dtype) is not None or item.dtype.kind in "SUO"
    dtype = np.dtype(object) if text else np.dtype(item.dtype)
    chunk_rows = item.chunks[0] if item.chunks else 1024
    return key, Column(key, name, tuple(item.shape[1:]), dtype, text, int(chunk_rows))


def _require_filters(item: Any, path: Path) -> None:
    properties = item.id.get_create_plist()
    codes = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
    unknown = [code for code in codes if not h5py.h5z.filter_avail(code)]
    if not unknown:
        return
    require("hdf5plugin", "data")  # registers its filters
    if any(not h5py.h5z.filter_avail(code) for code in unknown):
        raise DataError(
            f"{path}: {item.name!r} cannot be decompressed",
            expected="a filter of HDF5 or of the package hdf5plugin",
            found=f"filter number {', '.join(map(str, unknown))}",
        )


def _validate(
    path: Path, columns: Mapping[str, Column], rows: Mapping[str, int], lengths: Array, offsets: Array
) -> None:
    if not columns or lengths.shape != offsets.shape or lengths.ndim != 1 or not len(lengths):
        raise DataError(
            f"{path} holds no episodes",
            expected="at least one column, and ep_len and ep_offset of the same length, at least 1",
            found=f"{len(columns)} columns, ep_len {list(lengths.shape)}, ep_offset {list(offsets.shape)}",
        )
    if len(set(rows.values())) > 1:
        raise DataError(
            f"{path}: the columns differ in length",
            expected="as many rows in every column",
            found=", ".join(f"{key} {count:,}" for key, count in sorted(rows.items())),
        )
    order = np.argsort(offsets, kind="stable")
    following = np.append(offsets[order][1:], next(iter(rows.values())))
    ends = offsets[order] + lengths[order]
    bad = order[(lengths[order] < 1) | (offsets[order] < 0) | (ends > following)]
    if len(bad):
        episode = int(bad.min())
        raise DataError(
            f"{path}: episode {episode} does not fit into the file",
            expected="at least one row, inside the file and outside every other episode",
            found=f"ep_offset {offsets[episode]}, ep_len {lengths[episode]}, "
            f"{next(iter(rows.values()))} rows in the columns",
        )


def _json(file: h5py.File, name: str, default: Any, path: Path) -> Any:
    if name not in file.attrs:
        return default
    try:
        value = json.loads(file.attrs[name])
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: the attribute {name!r} is not JSON", found=str(error)) from error
    return value if isinstance(value, type(default)) else default


def _looks_like(file: h5py.File) -> str:
    keys = sorted(file)
    first = next(iter(file["data"]), "") if isinstance(file.get("data"), h5py.Group) else ""
    if first.startswith("demo"):
        return f"what looks like a robomimic file (data/{first})"
    if any(key.startswith("episode_") and isinstance(file[key], h5py.Group) for key in keys):
        return "what looks like a Minari file (episode_0 ...)"
    if {"observations", "actions"} <= set(keys):
        return "what looks like a D4RL file (observations, actions)"
    return f"keys {', '.join(keys[:12])}" if keys else "an empty HDF5 file"
