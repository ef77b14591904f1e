"""Windows cut from episodes: what a loss is fed.

A window of F = T+1 frames with frame-skip k starts at row r of an episode and holds the frames at
rows ``r, r+k, ..., r+T*k``. Between two frames lie k actions, side by side::

    frames    o[r]            o[r+k]          ...  o[r+T*k]
    actions        a[r..r+k-1]    a[r+k..r+2k-1]   ...

so it needs ``T*k + 1`` rows of one episode and never the action of the last row, which does not
exist.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from worldplan.data import layout
from worldplan.data.cache import cached, read_images, require_image
from worldplan.data.native import Dataset, require_finite
from worldplan.errors import DataError
from worldplan.seeding import Noise, derive
from worldplan.types import GOAL, Array, Batch, Obs

_HELD_BYTES = 1 << 30


class Windows:
    """All windows of some episodes, by number, in the order of the episodes.

    Args:
        dataset: an open native file.
        steps: F, frames per window. 1 gives single frames without actions.
        frame_skip: k, rows from one frame to the next.
        episodes: their numbers, in any order and selection; None for all.
        keys: observations to read. Images come out as ``uint8 [B, F, 3, h, w]``, a view of
            frames that lie channels-last in memory, as convolutions like them; floats as float32.
        image_size: resize images to this square, by area; None leaves them.
        cache: True reads images from a decoded copy beside the file, a path from a copy in that
            folder (see `cache`); the items are the same either way.
        pad: also start windows that run past the end of their episode, as long as one step of
            them is real. There, frames repeat the last row, actions are zero, the mask is False.
        actions: False for data without actions.

    Attributes:
        dropped: int64, the episodes too short for a window.
        needed: rows an episode must have.

    Raises:
        DataError: no window fits; an observation or action is missing, NaN, or of a wrong layout.
    """

    def __init__(
        self,
        dataset: Dataset,
        steps: int = 4,
        frame_skip: int = 5,
        episodes: Iterable[int] | None = None,
        keys: Iterable[str] = ("pixels",),
        *,
        image_size: int | None = None,
        cache: bool | str | Path = False,
        pad: bool = False,
        actions: bool = True,
    ) -> None:
        if steps < 1 or frame_skip < 1:
            raise DataError("a window has at least a frame", found=f"{steps=}, {frame_skip=}")
        self.dataset, self.steps, self.frame_skip = dataset, steps, frame_skip
        self.keys, self.image_size, self.pad, self.actions = tuple(keys), image_size, pad, actions
        self.episodes = _chosen(dataset, episodes)
        self._cache = cache if isinstance(cache, bool) else Path(os.path.abspath(cache))
        self._held: dict[str, Array] = {}
        self._require_columns()
        self.needed = (min(steps, 2) - 1 if pad else steps - 1) * frame_skip + 1
        counts = np.maximum(dataset.lengths[self.episodes] - self.needed + 1, 0)
        self.dropped: Array = self.episodes[counts == 0]
        self._ends = np.cumsum(counts)
        if not counts.sum():
            raise DataError(
                f"no window fits into the {len(self.episodes)} chosen episodes of {dataset.path}",
                expected=f"an episode of {self.needed} observations ({steps} frames, skip {frame_skip})",
                found=f"the longest has {int(dataset.lengths[self.episodes].max())}",
                fix="fewer steps or a smaller frame_skip" + ("" if pad else ", or pad=True"),
            )
        self._require_finite()
        for key in self.keys:
            if cache and dataset.columns[key].is_image:
                self._hold(key)  # made once, here, and not by every worker

    def __len__(self) -> int:
        """Number of windows."""
        return int(self._ends[-1])

    def __repr__(self) -> str:
        """How many windows, of what, and how many episodes were too short."""
        used = len(self.episodes) - len(self.dropped)
        return (
            f"Windows({len(self):,} of {self.steps} frames, frame-skip {self.frame_skip}, from {used:,} of "
            f"{len(self.episodes):,} episodes; {len(self.dropped):,} shorter than {self.needed} rows)"
        )

    def locate(self, indices: Array) -> tuple[Array, Array]:
        """Episode and first row within it, int64 ``[B]`` each, of windows ``[B]``."""
        indices = np.asarray(indices, np.int64)
        if indices.size and not (0 <= indices.min() and indices.max() < len(self)):
            raise IndexError(f"windows {indices.min()} to {indices.max()} of {len(self)}")
        place = np.searchsorted(self._ends, indices, side="right")
        before = np.concatenate(([0], self._ends))[place]
        return self.episodes[place], indices - before

    def batch(self, indices: Array) -> Batch:
        """The windows of int64 ``[B]`` numbers, in any order.

        Returns:
            ``obs [B, F, ...]``, ``actions [B, F-1, k*a]``, ``mask [B, F-1]``.
        """
        episode, step = self.locate(indices)
        last = self.dataset.lengths[episode] - 1
        first = self.dataset.offsets[episode]
        frames = step[:, None] + np.arange(self.steps) * self.frame_skip
        mask = frames[:, 1:] <= last[:, None]
        rows = first[:, None] + np.minimum(frames, last[:, None])
        obs = {key: self._tensor(key, rows) for key in self.keys}
        return Batch(obs, self._actions(first, step, last, mask), torch.from_numpy(mask))

    def goals(self, indices: Array, offsets: tuple[int, int], noise: Noise) -> tuple[Obs, Tensor]:
        """A later frame of the same episode for each window, as the goal of a policy.

        Args:
            indices: ``[B]`` windows.
            offsets: least and most rows between the window's first frame and the goal, both
                included. Where the episode ends sooner, its last row bounds the draw.
            noise: B rows; the offset is drawn uniformly from it.

        Returns:
            Observations ``goal/<key> [B, ...]``, and the offsets drawn, int64 ``[B]``.
        """
        assert noise.batch_size == len(indices), (noise.batch_size, len(indices))
        if not 0 <= offsets[0] <= offsets[1]:
            raise DataError("goals lie ahead", expected="0 <= least <= most", found=str(offsets))
        episode, step = self.locate(indices)
        ahead = self.dataset.lengths[episode] - 1 - step
        high = np.minimum(offsets[1], ahead)
        low = np.minimum(offsets[0], high)
        share = noise.at("goals").uniform(1)[:, 0].numpy().astype(np.float64)
        drawn = low + np.floor(share * (high - low + 1)).astype(np.int64)
        rows = self.dataset.offsets[episode] + step + drawn
        return {GOAL + key: self._tensor(key, rows) for key in self.keys}, torch.from_numpy(drawn)

    def sampler(self, batch_size: int, seed: int = 0, epoch: int = 0) -> Sampler:
        """Random batches without repeats within an epoch; see `Sampler`."""
        return Sampler(self, batch_size, seed, epoch)

    def columns(self, keys: Iterable[str] = ("action",)) -> dict[str, Array]:
        """All rows ``[n, d]`` of the chosen episodes, to measure statistics on; NaN where stored."""
        rows = self.dataset.rows(self.episodes)
        return {key: _matrix(self._values(key, rows)) for key in keys}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the columns held in memory, which each process reads for itself."""
        return {**self.__dict__, "_held": {}}

    def _require_columns(self) -> None:
        for key in self.keys:
            column = self.dataset.column(key)
            if key == "action":
                raise DataError("actions come as Batch.actions", fix="leave 'action' out of the keys")
            if column.text:
                raise DataError(f"{key!r} holds text, which no tensor can", fix=f"Dataset.array({key!r})")
            if len(column.shape) == 3 and layout.image_fault(column.shape, column.dtype):
                require_image(self.dataset, key)
        if self.actions and not self.dataset.action_dim:
            raise DataError(
                f"{self.dataset.path} has no actions",
                expected="a column 'action', one row per observation",
                found=", ".join(self.dataset.columns),
                fix="data with actions for an action-conditioned model; actions=False for video only",
            )

    def _require_finite(self) -> None:
        vectors = [key for key in self.keys if not self.dataset.columns[key].is_image]
        for key in ["action"] * self.actions + vectors:
            column = self.dataset.columns[key]
            if column.dtype.kind != "f" or column.row_bytes * self.dataset.num_rows > _HELD_BYTES:
                continue
            bad = layout.not_finite(self._hold(key))
            # no action follows an episode's last row, no reward precedes its first
            bad[self.dataset.offsets + self.dataset.lengths - 1] &= key != "action"
            bad[self.dataset.offsets] &= key != "reward"
            if not bad.any():
                continue
            for episode in self.episodes.tolist():
                first = self.dataset.offsets[episode]
                rows = slice(first, first + self.dataset.lengths[episode])
                values = np.where(bad[rows], np.nan, 0.0)
                require_finite(values, key, self.dataset.path, episode)

    def _actions(self, first: Array, step: Array, last: Array, mask: Array) -> Tensor:
        count, future = mask.shape
        if not self.actions:
            return torch.zeros(count, future, 0)
        steps = step[:, None] + np.arange(future * self.frame_skip)
        rows = first[:, None] + np.minimum(steps, last[:, None])
        folded = (count, future, self.frame_skip * self.dataset.action_dim)
        values = self._values("action", rows).reshape(folded)
        values = np.where(mask[..., None], values, np.zeros((), values.dtype))
        return torch.from_numpy(_plain(values))

    def _tensor(self, key: str, rows: Array) -> Tensor:
        if not self.dataset.columns[key].is_image:
            return torch.from_numpy(_plain(self._values(key, rows)))
        if self._cache:
            frames = np.take(self._hold(key), rows, axis=0)
        else:
            flat = read_images(self.dataset, key, rows.reshape(-1), self.image_size)
            frames = flat.reshape(*rows.shape, *flat.shape[1:])
        return torch.from_numpy(frames).movedim(-1, -3)  # [..., h, w, 3] -> [..., 3, h, w]

    def _values(self, key: str, rows: Array) -> Array:
        column = self.dataset.column(key)
        if column.row_bytes * self.dataset.num_rows > _HELD_BYTES:
            return self.dataset.array(key, rows)
        return np.take(self._hold(key), rows, axis=0)

    def _hold(self, key: str) -> Array:
        if key not in self._held:
            if self.dataset.columns[key].is_image:
                folder = self._cache if isinstance(self._cache, Path) else None
                self._held[key] = cached(self.dataset, key, self.image_size, folder)
            else:
                self._held[key] = self.dataset.array(key)
        return self._held[key]


@dataclass(frozen=True)
class Sampler:
    """Batches in random order; which windows batch i holds depends on (seed, epoch, i) alone.

    ``sampler[i]`` reads batch i, counted from the start of `epoch` and running on into the next
    ones, so a training step can be repeated or resumed by its number. Iterating gives one epoch.
    It serves as the data set of a ``torch.utils.data.DataLoader(sampler, batch_size=None)``: any
    number of workers yields the same batches.

    Attributes:
        windows: to draw from.
        batch_size: B. Windows left over at the end of an epoch are skipped; with fewer than B
            windows altogether, every batch holds them all.
        seed: of the order.
        epoch: where counting starts.
    """

    windows: Windows
    batch_size: int
    seed: int = 0
    epoch: int = 0

    def __len__(self) -> int:
        """Batches per epoch."""
        return max(1, len(self.windows) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """The batches of one epoch."""
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Batch:
        """Batch `number`, which may lie in a later epoch."""
        return self.windows.batch(self.indices(number))

    def indices(self, number: int) -> Array:
        """Which windows batch `number` holds, int64 ``[B]``."""
        ahead, place = divmod(number, len(self))
        order = _order(self.seed, self.epoch + ahead, len(self.windows))
        return order[place * self.batch_size : (place + 1) * self.batch_size]


@functools.lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> Array:
    order = np.random.default_rng(derive(seed, "windows", epoch)).permutation(count)
    order.flags.writeable = False
    return order


def _chosen(dataset: Dataset, episodes: Iterable[int] | None) -> Array:
    chosen = np.arange(len(dataset)) if episodes is None else np.asarray(list(episodes), np.int64)
    if not len(chosen) or chosen.min() < 0 or chosen.max() >= len(dataset):
        raise DataError(
            f"these episodes are not in {dataset.path}",
            expected=f"some of 0 to {len(dataset) - 1}",
            found=f"{chosen.min()} to {chosen.max()}" if len(chosen) else "none",
        )
    return chosen


def _plain(values: Array) -> Array:
    """float32 for any float, int64 for any integer, bool as it is."""
    kind = {"f": np.float32, "i": np.int64, "u": np.int64}.get(values.dtype.kind)
    return np.ascontiguousarray(values if kind is None else values.astype(kind))


def _matrix(values: Array) -> Array:
    return values.reshape(len(values), -1)
