"""The same action for ever: doing nothing is a baseline too."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from worldplan.errors import ConfigError
from worldplan.seeding import Noise
from worldplan.types import ActionSpec, Carry, Obs


@dataclass(frozen=True)
class ConstantPolicy:
    """Repeats one action.

    Attributes:
        action: the action space.
        value: ``[a]`` environment units; None means zeros (or choice 0), moved inside the bounds.
        name: for records.
    """

    action: ActionSpec
    value: tuple[float, ...] | None = None
    name: str = "nothing"

    def __post_init__(self) -> None:
        """Refuses a value of another size."""
        if self.value is not None and len(self.value) != self.action.dim:
            raise ConfigError(
                "the constant action has the wrong size",
                expected=f"{self.action.dim} numbers",
                found=str(self.value),
            )

    def initial(self, batch_size: int) -> Carry:
        """Nothing is remembered."""
        return {}

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """The action, ``[B, 1, a]``."""
        discrete = self.action.choices is not None
        value = torch.tensor(
            self.value or (0,) * self.action.dim,
            dtype=torch.int64 if discrete else torch.float32,
            device=noise.rows.device,
        )
        return self.action.project(value).repeat(noise.batch_size, 1, 1), carry
