"""Learning-rate schedules, as a function of how much of the training is over.

Progress runs from 0 to 1, so the same schedule serves a number of steps and a time budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up, then a decay.

    With p the progress, w the warm-up and f the floor: ``p / w`` up to w, then
    ``f + (1 - f) (1 + cos(pi (p - w) / (1 - w))) / 2``.

    Attributes:
        warmup: share of the training in which the rate rises.
        decay: shape after it.
        floor: share of the peak rate that is left at the end.
    """

    warmup: float = 0.01
    decay: Literal["cosine", "linear", "constant"] = "cosine"
    floor: float = 0.0

    def __call__(self, progress: float) -> float:
        """Factor on the peak learning rate at `progress` in [0, 1]."""
        if progress < self.warmup:
            return progress / self.warmup
        if self.decay == "constant":
            return 1.0
        left = 1 - min(1.0, (progress - self.warmup) / max(1e-12, 1 - self.warmup))
        shape = left if self.decay == "linear" else (1 - math.cos(math.pi * left)) / 2
        return self.floor + (1 - self.floor) * shape


def progress(step: int, steps: int, elapsed: float, max_seconds: float | None) -> float:
    """Share of the training that is over in the middle of `step` (from 0), by steps or by time.

    The middle, so that neither the first nor the last step has a learning rate of zero.
    """
    spent = 0.0 if max_seconds is None else elapsed / max_seconds
    return min(1.0, max((step + 0.5) / steps, spent))
