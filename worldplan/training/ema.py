"""An exponential moving average of a model's weights, for evaluation."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


class Ema(Generic[M]):
    """``average <- d average + (1 - d) weights`` after each step t, ``d = min(decay, (1 + t) / (10 + t))``.

    The average of early steps is short, so it does not remember the initial weights. Buffers and
    integers are copied.

    Args:
        model: the model that is trained; the average begins as its copy.
        decay: d in the long run.
    """

    def __init__(self, model: M, decay: float = 0.999) -> None:
        self.decay = decay
        self.module: M = copy.deepcopy(model).requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, model: M, step: int) -> None:
        """Takes in the weights after `step` (from 0)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for mean, new in zip(self.module.parameters(), model.parameters(), strict=True):
            mean.lerp_(new.to(mean.dtype), 1 - decay)
        for kept, current in zip(self.module.buffers(), model.buffers(), strict=True):
            kept.copy_(current)
