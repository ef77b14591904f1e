"""A decoded copy of an image column that the operating system maps into memory.

Decoding a frame costs about ten times as much as copying it. The copy is a plain ``.npy`` file
``[rows, h, w, 3]``, named by the data file's size, modification time and layout, so a changed file
never meets an old copy. It may be deleted at any time.
"""

from __future__ import annotations

import builtins
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from worldplan.data.atomic import replacing
from worldplan.data.images import resize
from worldplan.data.native import Dataset
from worldplan.errors import DataError
from worldplan.types import Array

_BLOCK_BYTES = 32 << 20


def require_image(dataset: Dataset, key: str) -> None:
    """Raises `DataError` unless the column holds uint8 ``[h, w, 3]`` images."""
    column = dataset.column(key)
    if not column.is_image:
        raise DataError(
            f"{dataset.path}: {key!r} does not hold images as expected",
            expected="uint8 [h, w, 3] per row, values 0..255",
            found=f"{column.dtype} {list(column.shape)}",
            fix="write the file with worldplan.data.write from images in that layout",
        )


def read_images(dataset: Dataset, key: str, rows: Array | slice, size: int | None = None) -> Array:
    """Decodes some frames, ``uint8 [M, h, w, 3]``, resized to a square of `size` if given."""
    frames = dataset.array(key, rows)
    return frames if size is None else resize(frames, size)


def default_folder(dataset: Dataset) -> Path:
    """Where decoded copies go unless told otherwise: a folder beside the file."""
    return dataset.path.with_name(f"{dataset.path.name}.cache")


def cached(dataset: Dataset, key: str, size: int | None = None, folder: Path | None = None) -> Array:
    """The decoded column, read-only and mapped into memory; made on first use.

    Args:
        dataset: the file.
        key: of an image column.
        size: resize frames to this square, by area.
        folder: where the copy lives; None for `default_folder`.

    Raises:
        DataError: not an image column, or no permission or space to write the copy.
    """
    require_image(dataset, key)
    shape = (dataset.num_rows, *(dataset.column(key).shape if size is None else (size, size, 3)))
    path = (folder or default_folder(dataset)) / _name(dataset, key, shape)
    if (copy := _load(path, shape)) is None:
        _require_space(path.parent, int(np.prod(shape, dtype=np.int64)))
        with replacing(path, overwrite=True) as draft:
            _decode(dataset, key, shape, size, draft)
        copy = _load(path, shape)
    assert copy is not None, path
    return copy


def _load(path: Path, shape: tuple[int, ...]) -> Array | None:
    """The copy, or None where there is no whole one."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    # a plain array over the map indexes faster than np.memmap, which wraps every result
    return found.view(np.ndarray) if found.shape == shape and found.dtype == np.uint8 else None


def _decode(dataset: Dataset, key: str, shape: tuple[int, ...], size: int | None, draft: Path) -> None:
    block = max(1, _BLOCK_BYTES // dataset.column(key).row_bytes)
    header: dict[str, Any] = {"descr": "|u1", "fortran_order": False, "shape": shape}
    # written, not mapped: a full disk is then an error and not a bus fault
    with builtins.open(draft, "wb") as file:
        np.lib.format.write_array_header_2_0(file, header)
        for first in range(0, shape[0], block):
            rows = slice(first, min(first + block, shape[0]))
            file.write(np.ascontiguousarray(read_images(dataset, key, rows, size)).data)


def _name(dataset: Dataset, key: str, shape: tuple[int, ...]) -> str:
    status = dataset.path.stat()
    layout = [(column.key, column.shape, str(column.dtype)) for column in dataset.columns.values()]
    stamp = (status.st_size, status.st_mtime_ns, dataset.path.name)
    facts = (stamp, key, shape, layout, dataset.lengths.tolist())
    digest = hashlib.blake2b(repr(facts).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in key)[:40]
    return f"{plain}-{shape[1]}x{shape[2]}-{digest}.npy"


def _require_space(folder: Path, needed: int) -> None:
    present = next((place for place in (folder, *folder.parents) if place.exists()), Path(os.sep))
    free = shutil.disk_usage(present).free
    if free < needed + (64 << 20):
        raise DataError(
            "no room for the decoded copy of the images",
            expected=f"{needed / 1e9:.1f} GB in {folder}",
            found=f"{free / 1e9:.1f} GB free",
            fix="another cache folder, a smaller image_size, or cache=False",
        )
