"""Held-out episodes: split by episode, never by window, so no frame is on both sides."""

from __future__ import annotations

import numpy as np

from worldplan.data.native import Dataset
from worldplan.errors import DataError
from worldplan.seeding import derive
from worldplan.types import Array


def split(
    dataset: Dataset, held_out: float | int = 0.1, seed: int = 0, *, imagined: bool = False
) -> tuple[Array, Array]:
    """Divides episodes into training and held-out ones.

    Each episode's place in the draw depends on (seed, its number) alone.

    Args:
        dataset: the file.
        held_out: share of the episodes (a float below 1) or how many (an int); at least one.
        seed: of the draw.
        imagined: whether episodes a model dreamt may be held out; else they are all for training.

    Returns:
        Training and held-out episode numbers, int64, ascending.

    Raises:
        DataError: the held-out part would be everything, or more than there is.
    """
    real = [i for i in range(len(dataset)) if imagined or dataset.meta(i)["source"] == "real"]
    count = held_out if isinstance(held_out, int) else max(1, round(held_out * len(real)))
    if not (0 < count <= len(real) and count < len(dataset)):
        raise DataError(
            f"cannot hold out {held_out} of {dataset.path}",
            expected="at least one episode on each side",
            found=f"{len(dataset)} episodes, {len(real)} of them eligible",
            fix=None if len(real) == len(dataset) else "imagined=True to evaluate on imagined episodes too",
        )
    ranked = sorted(real, key=lambda number: derive(seed, "split", number))
    test = np.sort(np.asarray(ranked[:count], np.int64))
    return np.setdiff1d(np.arange(len(dataset)), test), test
