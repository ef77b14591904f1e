"""Actions drawn uniformly from the action space: the floor every policy has to beat."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from worldplan.errors import ConfigError
from worldplan.seeding import Noise
from worldplan.types import ActionSpec, Carry, Obs


@dataclass(frozen=True)
class RandomPolicy:
    """Uniform actions, independent per step.

    Attributes:
        action: bounds or number of choices.
        chunk: K, actions per call.
        name: for records.
    """

    action: ActionSpec
    chunk: int = 1
    name: str = "random"

    def __post_init__(self) -> None:
        """Refuses spaces without bounds."""
        if self.action.choices is None and not self.action.low:
            raise ConfigError(
                "a uniform draw needs bounds",
                expected="an action space with lower and upper bounds, or choices",
                found=f"an unbounded space of {self.action.dim} dimensions",
            )

    def initial(self, batch_size: int) -> Carry:
        """Nothing is remembered."""
        return {}

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """Draws ``[B, K, a]`` under the name ``"random"``; float32, or int64 for choices."""
        here = noise.at("random")
        if self.action.choices is not None:
            return here.integers(self.action.choices, self.chunk, self.action.dim), carry
        draws = here.uniform(self.chunk, self.action.dim, dtype=torch.float32)
        low, high = draws.new_tensor(self.action.low), draws.new_tensor(self.action.high)
        return self.action.project(low + draws * (high - low)), carry
