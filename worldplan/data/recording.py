"""Writing episodes into the native layout, each checked before it is taken in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from worldplan.data import layout
from worldplan.errors import DataError
from worldplan.types import GOAL, Array, Episode

_GATHERED = ("env", "policy", "model", "source")


@dataclass(frozen=True)
class _Field:
    """What a column's rows look like."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def record(path: Path, episodes: Iterable[Episode], attrs: Mapping[str, Any]) -> None:
    """Writes all episodes to `path`, in order.

    Raises:
        DataError: names the episode and what is wrong with it; or there was none.
    """
    metas: list[dict[str, Any]] = []
    lengths: list[int] = []
    fields: dict[str, _Field] = {}
    # v110 indexes growing columns in constant time: writing and opening are faster, files smaller
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        for number, episode in enumerate(episodes):
            columns = _columns(episode, number)
            found = {key: _Field(rows.shape[1:], rows.dtype) for key, rows in columns.items()}
            if not number:
                fields = found
                for key, field in fields.items():
                    _create(file, key, field)
            _require_same(fields, found, number)
            first, length = sum(lengths), len(columns["step_idx"])
            for key, rows in columns.items():
                stored = file[_name(key)]
                stored.resize(first + length, 0)
                stored[first:] = rows
            lengths.append(length)
            metas.append(_plain_meta(episode.meta, number))
        if not lengths:
            raise DataError("there is no episode to write", expected="at least one", found="none")
        offsets = np.cumsum([0, *lengths[:-1]])
        file.create_dataset("ep_len", data=np.asarray(lengths, np.int32))
        file.create_dataset("ep_offset", data=offsets.astype(np.int64))
        about = {"format": layout.VERSION, **_gathered(metas), **attrs}
        file.attrs[layout.FILE_ATTRIBUTE] = _json(about, "attrs")
        file.attrs[layout.EPISODES_ATTRIBUTE] = json.dumps(metas)


def verify(file: h5py.File, found: layout.Layout) -> None:
    """Asserts of a finished file that no action follows an episode's last observation."""
    ends = found.offsets + found.lengths
    rows = found.rows
    assert int(ends[-1]) == rows, (ends[-1], rows)
    if "action" not in found.columns:
        return
    actions = file["action"][...].reshape(rows, -1)
    last = np.zeros(rows, bool)
    last[ends - 1] = True
    if actions.dtype.kind == "f":
        absent = np.isnan(actions).any(1)
        assert (absent == last).all(), f"misplaced actions at rows {np.flatnonzero(absent != last)}"
    else:
        assert (actions[last] == -1).all()


def _columns(episode: Episode, number: int) -> dict[str, Array]:
    """Lays out one episode, ``[T+1, ...]`` each, or raises `DataError`."""
    where = f"episode {number}"
    actions = np.asarray(episode.actions)
    if actions.ndim != 2 or actions.dtype.kind not in "fiu":
        raise DataError(
            f"{where}: unusable actions",
            expected="numbers [T, a]; [T, 0] for video without actions",
            found=f"{actions.dtype} {list(actions.shape)}",
        )
    length = len(actions) + 1
    _require_finite(actions, f"{where}: action")
    columns = {key: _observation(np.asarray(rows), key, length, where) for key, rows in episode.obs.items()}
    if not columns:
        raise DataError(f"{where}: no observations", expected="at least one key", found="none")
    if actions.shape[1]:
        absent = np.full((1, actions.shape[1]), np.nan if actions.dtype.kind == "f" else -1)
        signed = actions.dtype if actions.dtype.kind in "fi" else np.dtype(np.int64)
        columns["action"] = np.concatenate((actions, absent)).astype(signed)
    columns |= _outcome(episode, length, where)
    columns["step_idx"] = np.arange(length, dtype=np.int32)
    columns["episode_idx"] = np.full(length, number, np.int32)
    return columns


def _observation(rows: Array, key: str, length: int, where: str) -> Array:
    if key in (*layout.BOOKKEEPING, *layout.INDEX, "", "."):
        raise DataError(f"{where}: an observation may not be called {key!r}", fix="rename it")
    if rows.ndim == 0 or len(rows) != length:
        trailing = rows.ndim > 0 and len(rows) == length - 1
        raise DataError(
            f"{where}: {key!r} is not aligned with the actions",
            expected=f"{length} observations for {length - 1} actions: one before and one after each",
            found=f"shape {list(rows.shape)}",
            fix="keep the observation after the last action, or drop that action" if trailing else None,
        )
    if rows.dtype.kind in "SUO":
        texts = [item.decode() if isinstance(item, bytes) else item for item in rows.reshape(-1).tolist()]
        if not all(isinstance(item, str) for item in texts):
            raise DataError(f"{where}: {key!r} holds objects", expected="numbers or text")
        return np.array(texts, object).reshape(rows.shape)
    if fault := layout.image_fault(rows.shape[1:], rows.dtype):
        raise DataError(f"{where}: {key!r} holds {fault}", expected="uint8 [T+1, h, w, 3], values 0..255")
    _require_finite(rows, f"{where}: {key}")
    return rows


def _outcome(episode: Episode, length: int, where: str) -> dict[str, Array]:
    rewards = np.asarray(episode.rewards, np.float32)
    unknown = bool(np.isnan(rewards).all())
    if rewards.shape != (length - 1,) or not (unknown or np.isfinite(rewards).all()):
        raise DataError(
            f"{where}: unusable rewards",
            expected=f"{length - 1} finite numbers, or all NaN where none were given",
            found=f"shape {list(rewards.shape)}, {int((~np.isfinite(rewards)).sum())} not finite",
        )
    last = np.arange(length) == length - 1
    known, success = episode.meta.get("success") is not None, last & bool(episode.meta.get("success"))
    return {
        "reward": np.concatenate((np.full(1, np.nan, np.float32), rewards)),
        "terminated": last & bool(episode.terminated),
        "truncated": last & bool(episode.truncated),
        "success": success.astype(np.int8) if known else np.full(length, -1, np.int8),
    }


def _require_finite(rows: Array, what: str) -> None:
    bad = layout.not_finite(rows)
    if bad.any():
        step = int(bad.argmax())
        raise DataError(f"{what} is not finite at step {step}", found=str(rows[step].tolist())[:200])


def _require_same(fields: Mapping[str, _Field], found: Mapping[str, _Field], number: int) -> None:
    for key in sorted({*fields, *found}):
        if fields.get(key) != found.get(key):
            expected, got = fields.get(key), found.get(key)
            raise DataError(
                f"episode {number}: {key!r} differs from the episodes before it",
                expected=f"{expected.dtype} {list(expected.shape)} per row" if expected else "no such key",
                found=f"{got.dtype} {list(got.shape)} per row" if got else "no such key",
            )


def _create(file: h5py.File, key: str, field: _Field) -> None:
    if _name(key) in (*file, *layout.INDEX):
        raise DataError(f"two observations would share the name {_name(key)!r}", fix=f"rename {key!r}")
    text = field.dtype.kind == "O"
    image = len(field.shape) >= 2 and not text
    # a goal stays the same for an episode: many rows in a chunk cost little more than one
    alone = image and not key.startswith(GOAL)
    row_bytes = max(1, field.dtype.itemsize * int(np.prod(field.shape, dtype=np.int64)))
    stored = file.create_dataset(
        _name(key),
        shape=(0, *field.shape),
        maxshape=(None, *field.shape),
        dtype=h5py.string_dtype() if text else field.dtype,
        # a random frame should decode itself only; vectors are read in bulk
        chunks=(1 if alone else max(1, min(1024, (1 << 18) // row_bytes)), *field.shape),
        # on rendered frames gzip 1 is smaller than lzf and no slower to read
        compression="gzip" if image else None,
        compression_opts=1 if image else None,
    )
    if _name(key) != key:
        stored.attrs[layout.KEY_ATTRIBUTE] = key


def _name(key: str) -> str:
    return key.replace("/", ".")  # a slash would make a group, which flat readers do not expect


def _plain_meta(meta: Mapping[str, Any], number: int) -> dict[str, Any]:
    source = meta.get("source")
    if source not in ("real", "model"):
        raise DataError(
            f"episode {number} does not say where it comes from",
            expected='meta["source"] "real" (a simulator or robot) or "model" (imagined)',
            found=repr(source),
        )
    if source == "model" and not meta.get("model"):
        raise DataError(
            f"episode {number} was imagined by an unnamed model", expected='meta["model"], its id'
        )
    plain: dict[str, Any] = json.loads(_json(meta, f"meta of episode {number}"))
    return plain


def _gathered(metas: list[dict[str, Any]]) -> dict[str, Any]:
    """What the episodes share: one value, or a sorted list of the values that occur."""
    found: dict[str, Any] = {}
    for key in _GATHERED:
        values = sorted({str(meta[key]) for meta in metas if meta.get(key) is not None})
        if values:
            found[key] = values[0] if len(values) == 1 else values
    return found


def _json(value: Mapping[str, Any], what: str) -> str:
    def plain(item: Any) -> Any:
        if isinstance(item, np.generic | np.ndarray):
            return item.tolist()
        if isinstance(item, Path):
            return str(item)
        if isinstance(item, Mapping):
            return dict(item)
        raise DataError(
            f"{what} holds something that is not data", found=f"{type(item).__name__}: {item!r}"[:200]
        )

    return json.dumps(dict(value), default=plain)
