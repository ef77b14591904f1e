"""What is wrong with the contents of a data file, as opposed to its layout, which `open` checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from worldplan.data import layout
from worldplan.data.native import Dataset
from worldplan.errors import suggest
from worldplan.types import GOAL, Array

IMAGE_SAMPLE = 256
_READ_BYTES = 1 << 30


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        kind: ``missing``, ``length``, ``nan``, ``constant``, ``image``, ``index`` or ``flag``.
        message: what was found, where.
        key: of the column, or None.
        episode: the first affected, or None.
        fix: what to do.
        warning: whether the data can be used all the same.
    """

    kind: str
    message: str
    key: str | None = None
    episode: int | None = None
    fix: str | None = None
    warning: bool = False

    def __str__(self) -> str:
        """The message with its remedy."""
        return f"{self.kind}: {self.message}" + (f" ({self.fix})" if self.fix else "")


def check(dataset: Dataset, required: Iterable[str] = (), min_rows: int = 2) -> list[Fault]:
    """Looks for faults: keys, lengths, NaN, constant dimensions, images, indices and flags.

    All rows of vectors are read, and a sample of the images.

    Args:
        dataset: the file.
        required: keys that must be there.
        min_rows: observations an episode needs to be of use.

    Returns:
        The faults, empty when there are none.
    """
    return [
        *_missing(dataset, required),
        *_lengths(dataset, min_rows),
        *(fault for key in dataset.columns for fault in _column(dataset, key)),
        *_indices(dataset),
        *_flags(dataset),
    ]


def sample_rows(dataset: Dataset, most: int = IMAGE_SAMPLE) -> Array:
    """At most `most` row numbers, evenly spread over the file."""
    return np.unique(np.linspace(0, dataset.num_rows - 1, min(most, dataset.num_rows)).astype(np.int64))


def _missing(dataset: Dataset, required: Iterable[str]) -> Iterator[Fault]:
    for key in required:
        if key not in dataset.columns:
            yield Fault("missing", f"no column {key!r}", key, fix=suggest(key, dataset.columns))


def _lengths(dataset: Dataset, min_rows: int) -> Iterator[Fault]:
    short = np.flatnonzero(dataset.lengths < min_rows)
    if len(short):
        yield Fault(
            "length",
            f"{len(short)} of {len(dataset)} episodes have fewer than {min_rows} observations",
            episode=int(short[0]),
            fix="windows leave them out",
            warning=True,
        )
    if (surplus := dataset.num_rows - int(dataset.lengths.sum())) > 0:
        yield Fault("length", f"{surplus} rows belong to no episode", warning=True)


def _column(dataset: Dataset, key: str) -> Iterator[Fault]:
    column = dataset.columns[key]
    if column.text or key in ("step_idx", "episode_idx", "ep_idx", "terminated", "truncated", "success"):
        return
    if fault := layout.image_fault(column.shape, column.dtype):
        yield Fault("image", f"{key!r} holds {fault}", key, fix="expected uint8 [h, w, 3], values 0..255")
    elif column.is_image:
        yield from _images(dataset, key)
    elif column.row_bytes * dataset.num_rows <= _READ_BYTES:
        yield from _vectors(dataset, key)


def _vectors(dataset: Dataset, key: str) -> Iterator[Fault]:
    values = dataset.array(key).reshape(dataset.num_rows, -1)
    bad = layout.not_finite(values)
    finite = values[~bad]
    if key == "action":
        bad[dataset.offsets + dataset.lengths - 1] = False
    if key == "reward":
        bad[dataset.offsets] = False
        bad &= bool(len(finite))  # all NaN: no rewards were recorded
    if bad.any():
        episode, step = _locate(dataset, int(bad.argmax()))
        yield Fault(
            "nan",
            f"{int(bad.sum())} rows of {key!r} are not finite, first in episode {episode}, step {step}",
            key,
            episode,
            "repair them or leave those episodes out",
        )
    if key == "reward" or key.startswith(GOAL) or len(finite) < 2:
        return
    constant = np.flatnonzero((finite == finite[0]).all(0))
    if len(constant):
        listed = ", ".join(map(str, constant[:8].tolist()))
        message = f"{key!r} never changes in dimension {listed}"
        yield Fault("constant", message, key, fix="leave it out", warning=True)


def _images(dataset: Dataset, key: str) -> Iterator[Fault]:
    frames = dataset.array(key, sample_rows(dataset))
    if len(frames) > 1 and (frames == frames[0]).all():
        yield Fault("image", f"all sampled frames of {key!r} are the same", key, fix="was it rendered?")
    elif frames.max() <= 1:
        yield Fault("image", f"{key!r} holds no value above 1", key, fix="scale 0..1 images by 255")


def _indices(dataset: Dataset) -> Iterator[Fault]:
    if "step_idx" not in dataset.columns:
        return
    steps = dataset.array("step_idx").reshape(-1)
    starts = np.repeat(dataset.offsets, dataset.lengths)
    rows = dataset.rows(range(len(dataset)))
    wrong = rows[steps[rows] != rows - starts]
    if len(wrong):
        episode, step = _locate(dataset, int(wrong[0]))
        yield Fault(
            "index",
            f"'step_idx' is {steps[wrong[0]]} at step {step} of episode {episode}: rows are shifted or mixed",
            "step_idx",
            episode,
        )


def _flags(dataset: Dataset) -> Iterator[Fault]:
    if "terminated" not in dataset.columns:
        return
    flags = np.nan_to_num(dataset.array("terminated").reshape(-1).astype(np.float32)) > 0
    flags[dataset.offsets + dataset.lengths - 1] = False
    if flags.any():
        episode, step = _locate(dataset, int(flags.argmax()))
        yield Fault(
            "flag",
            f"episode {episode} goes on after it terminated at step {step} ({int(flags.sum())} such rows)",
            "terminated",
            episode,
            "cut the episode there",
        )


def _locate(dataset: Dataset, row: int) -> tuple[int, int]:
    holds = (dataset.offsets <= row) & (row < dataset.offsets + dataset.lengths)
    if not holds.any():
        return -1, row
    episode = int(holds.argmax())
    return episode, row - int(dataset.offsets[episode])
