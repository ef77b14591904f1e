"""Smooth random torques for Reacher: the scripted source of Reacher data.

Torques follow an Ornstein-Uhlenbeck process, ``u <- p u + sqrt(1 - p^2) s n``. A drag against the joint
velocities keeps the arm from spinning up, and a pull keeps the elbow off its limits. No goal is involved:
this is play.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from worldplan.seeding import Noise
from worldplan.types import Carry, Obs


@dataclass(frozen=True)
class ReacherScripted:
    """Smooth random torques; needs ``state [B, 4]``.

    Attributes:
        scale: s, standard deviation of the torques.
        persistence: p in [0, 1), how much of a torque is left after one step.
        drag: torque against each joint, per rad/s.
        pull: torque that straightens the elbow, per rad.
        name: for records.
    """

    scale: float = 0.1
    persistence: float = 0.9
    drag: float = 0.02
    pull: float = 0.05
    name: str = "scripted"

    @property
    def requires(self) -> tuple[str, ...]:
        """Keys an observation must have."""
        return ("state",)

    def initial(self, batch_size: int) -> Carry:
        """At rest."""
        return {"torque": torch.zeros(batch_size, 2)}

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """One action per row, ``[B, 1, 2]``."""
        draws = noise.at("torque").normal(2)
        spread = self.scale * math.sqrt(1 - self.persistence**2)
        torque = self.persistence * carry["torque"] + spread * draws
        state = obs["state"]
        bent = torch.stack((torch.zeros_like(state[:, 1]), state[:, 1]), 1)
        action = (torque - self.drag * state[:, 2:4] - self.pull * bent).clamp(-1, 1)
        return action[:, None], {"torque": torque}
