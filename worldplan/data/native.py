"""Reading and writing the native file: flat HDF5, one row per observation (see `layout`).

    dataset = open("pusht.h5")
    episode = dataset.episode(3)          # T+1 observations, T actions
    write("copy.h5", (dataset.episode(i) for i in range(len(dataset))))

The public LeWM data sets open as they are; the files written here open in stable-worldmodel.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Iterable, Mapping
from copy import copy
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np

from worldplan.data import layout, recording
from worldplan.data.atomic import replacing
from worldplan.data.layout import Column
from worldplan.errors import DataError, suggest
from worldplan.types import Array, Episode

_SPAN_BYTES = 1 << 20


class Dataset:
    """Episodes in a file, read when asked for.

    The file is opened once per process and closed when the object is pickled, so it may be handed
    to worker processes, forked or spawned.

    Attributes:
        path: absolute path of the file.
        columns: what each row holds, by key.
        lengths: int64 ``[E]``, observations per episode (T+1).
        offsets: int64 ``[E]``, first row of each episode.
        attrs: what the writer said about the file: env, policy, source, action ...
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self._file: h5py.File | None = None
        self._pid = 0
        self._stamp = _stamp(self.path)
        found = layout.read(self._open(), self.path)
        self.columns: Mapping[str, Column] = found.columns
        self.lengths, self.offsets = found.lengths, found.offsets
        self.attrs: Mapping[str, Any] = found.attrs
        self.num_rows = found.rows
        self._meta = found.episodes
        self._added: dict[str, Array] = {}

    def __len__(self) -> int:
        """E, the number of episodes."""
        return len(self.lengths)

    def __repr__(self) -> str:
        """Path, episodes, rows and keys on one line."""
        size = f"{len(self):,} episodes, {self.num_rows:,} rows"
        return f"Dataset({str(self.path)!r}: {size}, {', '.join(self.columns)})"

    @property
    def obs_keys(self) -> tuple[str, ...]:
        """Keys of the observations: every column that is not bookkeeping."""
        return tuple(key for key in self.columns if key not in layout.BOOKKEEPING)

    @property
    def action_dim(self) -> int:
        """a, dimensions of one action; 0 where the file has none (video only)."""
        column = self.columns.get("action")
        return int(np.prod(column.shape, dtype=np.int64)) if column else 0

    def column(self, key: str) -> Column:
        """The description of one column; raises `DataError` with near names when there is none."""
        if key not in self.columns:
            raise DataError(
                f"{self.path} has no column {key!r}",
                expected=key,
                found=", ".join(self.columns),
                fix=suggest(key, self.columns),
            )
        return self.columns[key]

    def meta(self, episode: int) -> dict[str, Any]:
        """What was recorded about an episode, with its ``source`` (``"real"`` unless known)."""
        if self._meta:
            return {"source": "real", **self._meta[episode]}
        known = ("source", "env", "policy", "model")
        return {"source": "real", **{key: self.attrs[key] for key in known if key in self.attrs}}

    def rows(self, episodes: Iterable[int]) -> Array:
        """int64 row numbers of some episodes, in their order."""
        spans = [np.arange(self.offsets[i], self.offsets[i] + self.lengths[i]) for i in episodes]
        return np.concatenate([np.empty(0, np.int64), *spans])

    def array(self, key: str, rows: Array | slice | None = None) -> Array:
        """Values of a column as stored, ``[rows, ...]``; text as an object array of `str`.

        Args:
            key: of the column.
            rows: a slice, row numbers in any order and with repeats, or None for all.

        Raises:
            DataError: no such column, or the file is damaged.
        """
        column = self.column(key)
        if key in self._added:
            return np.asarray(self._added[key][slice(None) if rows is None else rows])
        stored = self._open()[column.name]
        stored = stored.asstr() if column.text else stored
        try:
            if rows is None or isinstance(rows, slice):
                return np.asarray(stored[rows or slice(None)])
            return _gather(stored, column, np.asarray(rows, np.int64))
        except OSError as error:
            raise DataError(
                f"{self.path}: {key!r} cannot be read",
                expected="data as it was written",
                found=f"damaged data ({error})",
                fix="copy or download the file again",
            ) from error

    def episode(self, number: int) -> Episode:
        """One episode, with all its observations.

        Raises:
            DataError: no such episode, or one of its actions is NaN before the last row.
        """
        if not 0 <= number < len(self):
            raise DataError(
                f"{self.path} has no episode {number}", expected=f"0 to {len(self) - 1}", found=str(number)
            )
        first, length = int(self.offsets[number]), int(self.lengths[number])
        rows = slice(first, first + length)
        last = slice(first + length - 1, first + length)
        actions = np.zeros((length - 1, 0), np.float32)
        if "action" in self.columns:
            actions = self.array("action", rows)[:-1].reshape(length - 1, self.action_dim)
            require_finite(actions, "action", self.path, number)
        rewards = np.full(length - 1, np.nan, np.float32)
        if "reward" in self.columns:
            rewards = self.array("reward", rows)[1:].reshape(length - 1)
        ended = {
            key: bool(np.nan_to_num(self.array(key, last).astype(np.float32)).any())
            for key in ("terminated", "truncated")
            if key in self.columns
        }
        return Episode(
            obs={key: self.array(key, rows) for key in self.obs_keys},
            actions=actions,
            rewards=rewards,
            terminated=ended.get("terminated", False),
            truncated=ended.get("truncated", "terminated" not in ended),
            meta=self.meta(number),
        )

    def with_columns(self, columns: Mapping[str, Array]) -> Dataset:
        """The same episodes with more columns, held in memory: latents, rewards, labels.

        Args:
            columns: ``[rows, ...]`` each, a row per observation of the file. Columns of the file may be
                replaced, all but those of its index.

        Raises:
            DataError: a column has another number of rows.
        """
        found = copy(self)
        found._file, found._added = None, {**self._added}
        added = {}
        for key, values in columns.items():
            if len(values) != self.num_rows or key in layout.INDEX:
                raise DataError(
                    f"{key!r} cannot be a column of {self.path}",
                    expected=f"{self.num_rows} rows, one per observation, and no name of {layout.INDEX}",
                    found=f"{len(values)} rows",
                )
            found._added[key] = values
            added[key] = Column(key, key, values.shape[1:], values.dtype, False, 1)
        found.columns = {**self.columns, **added}
        return found

    def close(self) -> None:
        """Closes the file; reading opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Closes the file."""
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the open file."""
        self.close()
        return {**self.__dict__, "_file": None}

    def _open(self) -> h5py.File:
        if self._file is not None and self._pid != os.getpid():
            # inherited through a fork: parent and child would share one position in the file
            self.close()
        if self._file is None:
            if _stamp(self.path) != self._stamp:
                raise DataError(f"{self.path} changed while it was in use", fix="open it again")
            self._file = _open_file(self.path)
            self._pid = os.getpid()
        return self._file


def open(path: str | os.PathLike[str]) -> Dataset:  # noqa: A001
    """Opens a native file and validates its layout.

    Raises:
        DataError: the file does not exist, is empty, truncated or of another format, or a column
            or episode does not fit; says which.
        MissingExtra: its compression needs hdf5plugin.
    """
    return Dataset(path)


def write(
    path: str | os.PathLike[str],
    episodes: Iterable[Episode],
    *,
    attrs: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Writes episodes one by one as they come; the file appears when the last one is in.

    Before that, each episode is checked (T+1 observations for T actions, the same columns as the
    first, nothing NaN) and the finished file is read back. Failure and Ctrl-C leave nothing.

    Args:
        path: of the new file; its folder is made if need be.
        episodes: consumed once. Their `meta` must say ``source``: ``"real"``, or ``"model"`` with
            the ``model``'s id.
        attrs: JSON-like facts about the file, e.g. ``action`` (unit and bounds). ``env``,
            ``policy`` and ``source`` are gathered from the episodes.
        overwrite: replace an existing file.

    Returns:
        The new file, open for reading.

    Raises:
        DataError: an episode is unusable, there is none, or the file cannot be written.
        RunError: the disk is full.
    """
    target = Path(os.path.abspath(path))
    with replacing(target, overwrite) as draft:
        recording.record(draft, episodes, attrs or {})
        with _open_file(draft) as file:
            recording.verify(file, layout.read(file, draft))
    return Dataset(target)


def require_finite(values: Array, key: str, path: Path, episode: int, first_step: int = 0) -> None:
    """Raises `DataError` naming the first NaN or infinite row of ``values [T, ...]``."""
    bad = layout.not_finite(values)
    if bad.any():
        step = int(bad.argmax())
        raise DataError(
            f"{path}: {key!r} is not finite in episode {episode}, step {first_step + step} "
            f"({int(bad.sum())} such rows in this episode)",
            expected="numbers; NaN only for the action of an episode's last row",
            found=str(np.asarray(values[step]).tolist()),
            fix="leave the episode out, or repair it where it was recorded",
        )


def _gather(stored: Any, column: Column, rows: Array) -> Array:
    """Reads rows in any order: each once, neighbours together."""
    if rows.size and (rows.min() < 0 or rows.max() >= stored.shape[0]):
        raise IndexError(f"rows {rows.min()} to {rows.max()} of {stored.shape[0]}")
    wanted, places = np.unique(rows, return_inverse=True)
    out = np.empty((len(wanted), *column.shape), column.dtype)
    # h5py's own fancy indexing costs about a millisecond per row; single rows and slices do not
    apart = np.diff(wanted) > column.chunk_rows
    full = np.arange(1, len(wanted)) % max(1, _SPAN_BYTES // max(column.row_bytes, 1)) == 0
    cuts = [0, *(np.flatnonzero(apart | full) + 1).tolist(), len(wanted)]
    numbers = wanted.tolist()
    for start, stop in itertools.pairwise(cuts) if numbers else ():
        low, high = numbers[start], numbers[stop - 1] + 1
        if high - low == 1:
            out[start] = stored[low]
            continue
        block = stored[low:high]
        out[start:stop] = block if stop - start == high - low else block[wanted[start:stop] - low]
    in_order = len(wanted) == rows.size and bool((places.reshape(-1) == np.arange(rows.size)).all())
    return out.reshape(*rows.shape, *column.shape) if in_order else out[places.reshape(rows.shape)]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise DataError(
            f"no such file: {path}",
            expected="an HDF5 file",
            found="nothing of that name",
            fix=_neighbours(path),
        ) from None
    except OSError as error:
        raise DataError(f"cannot open {path}", found=f"{error.strerror}") from error
    if path.is_dir():
        inside = sorted(item.name for item in path.iterdir() if item.suffix in (".h5", ".hdf5"))
        raise DataError(
            f"{path} is a folder",
            expected="an HDF5 file",
            found="a folder",
            fix=" or ".join(str(path / name) for name in inside[:3]) or None,
        )
    return status.st_size, status.st_mtime_ns


def _neighbours(path: Path) -> str | None:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent} either"
    names = [item.name for item in path.parent.iterdir() if item.suffix in (".h5", ".hdf5")]
    close = difflib.get_close_matches(path.name, names, n=3)
    return f"did you mean {' or '.join(str(path.parent / name) for name in close)}?" if close else None


def _open_file(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except PermissionError as error:
        raise DataError(f"cannot open {path}", found="no permission to read", fix="chmod u+r") from error
    except OSError as error:
        size = path.stat().st_size
        raise DataError(
            f"{path} cannot be read as HDF5",
            expected="a complete HDF5 file",
            found=f"{size:,} bytes, truncated or of another format ({error})" if size else "an empty file",
            fix="copy or download it again",
        ) from error
