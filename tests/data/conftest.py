"""Episodes of a counting environment: an observation says its step and the action that led to it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from worldplan.data.native import Dataset, write
from worldplan.types import Episode


def count_up(number: int, length: int, *, size: int = 8, **changes: object) -> Episode:
    """An episode of `length` observations whose every value tells where it belongs."""
    steps = np.arange(length)
    actions = np.stack((1000.0 * number + steps[:-1], -steps[:-1]), 1).astype(np.float32)
    echo = np.concatenate((np.full((1, 2), -7, np.float32), actions))
    pixels = np.zeros((length, size, size, 3), np.uint8)
    pixels[..., 0], pixels[..., 1], pixels[..., 2] = number, steps[:, None, None], np.arange(size)
    fields = {
        "obs": {
            "pixels": pixels,
            "counter": np.stack((steps, np.full(length, number)), 1).astype(np.float32),
            "echo": echo,
        },
        "actions": actions,
        "rewards": np.arange(1, length, dtype=np.float32),
        "terminated": number % 2 == 0,
        "truncated": number % 2 == 1,
        "meta": {
            "source": "real",
            "env": "counter",
            "policy": "up",
            "seed": number,
            "success": number % 3 == 0,
        },
    }
    return Episode(**{**fields, **changes})


Factory = Callable[..., Episode]


@pytest.fixture
def episode() -> Factory:
    """Makes one counting episode: ``episode(number, length)``."""
    return count_up


@pytest.fixture
def dataset(tmp_path: Path) -> Callable[[Sequence[int]], Dataset]:
    """Writes counting episodes of given lengths."""

    def make(lengths: Sequence[int], **options: object) -> Dataset:
        episodes = (count_up(number, length, **options) for number, length in enumerate(lengths))
        return write(tmp_path / f"{len(list(tmp_path.iterdir()))}.h5", episodes)

    return make
