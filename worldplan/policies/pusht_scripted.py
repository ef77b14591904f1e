"""A contact-seeking pusher for Push-T: the scripted source of Push-T data.

It draws a point on the T's outline, walks to a spot in front of it, pushes through it for a while,
and draws the next. Among a few points it prefers those that push the block towards the middle of
the world, so blocks neither stick to walls nor stop turning. No goal is involved: this is play.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from worldplan.seeding import Noise
from worldplan.types import Carry, Obs

# outline of the T in its own frame (px), counter-clockwise as y points down
_OUTLINE = ((-60, 0), (60, 0), (60, 30), (15, 30), (15, 120), (-15, 120), (-15, 30), (-60, 30))
_AGENT_RADIUS = 15.0


@dataclass(frozen=True)
class PushTScripted:
    """Contact-seeking play; needs ``state [B, 7]`` only.

    Attributes:
        action_noise: standard deviation added to every action.
        candidates: outline points drawn per push; 1 pushes anywhere, more keep the block central.
        min_speed: smallest norm of an action.
        max_speed: largest norm of an action.
        name: for records.
    """

    action_noise: float = 0.05
    candidates: int = 6
    min_speed: float = 0.06
    max_speed: float = 0.25
    name: str = "scripted"

    @property
    def requires(self) -> tuple[str, ...]:
        """Keys an observation must have."""
        return ("state",)

    def initial(self, batch_size: int) -> Carry:
        """Nothing chosen yet."""
        return {
            "step": torch.zeros(batch_size, dtype=torch.int64),
            "left": torch.zeros(batch_size, dtype=torch.int64),
            "pushing": torch.ones(batch_size, dtype=torch.bool),
            "contact": torch.zeros(batch_size, 2),
            "normal": torch.zeros(batch_size, 2),
            "speed": torch.zeros(batch_size),
            "slant": torch.zeros(batch_size),
        }

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """One action per row, ``[B, 1, 2]``."""
        state = obs["state"]
        agent, block, angle = state[:, :2], state[:, 2:4], state[:, 4]
        spent = (carry["left"] <= 0) | (((block - 256).abs() > 170).any(1) & carry["pushing"])
        carry = self._redraw(carry, spent & carry["pushing"], state, noise)
        arrived = self._distance(agent, block, angle, carry) < 8
        start_push = ~carry["pushing"] & (arrived | (carry["left"] <= 0))
        length = 3 + noise.at("length").integers(8)
        carry = {
            **carry,
            "pushing": carry["pushing"] | start_push,
            "left": torch.where(start_push, length, carry["left"]) - 1,
            "step": carry["step"] + 1,
        }
        spot = block + _rotate(carry["contact"] + carry["normal"] * (_AGENT_RADIUS + 20), angle)
        inward = _rotate(-carry["normal"], angle + carry["slant"])
        direction = torch.where(carry["pushing"][:, None], inward, spot - agent)
        distance = direction.norm(dim=1, keepdim=True).clamp_min(1e-6)
        speed = carry["speed"][:, None]
        gain = torch.where(carry["pushing"][:, None], speed, (distance / 60).clamp(max=1) * (speed + 0.1))
        action = direction / distance * gain
        action = action + self.action_noise * noise.at("action").normal(2)
        inside = (agent + 100 * action).clamp(25, 487)
        return ((inside - agent) / 100).clamp(-1, 1)[:, None], carry

    def _redraw(self, carry: Carry, rows: Tensor, state: Tensor, noise: Noise) -> Carry:
        agent, block, angle = state[:, :2], state[:, 2:4], state[:, 4]
        draws = noise.at("push").uniform(self.candidates + 4)
        corners = torch.tensor(_OUTLINE, dtype=torch.float32, device=state.device)
        edges = corners.roll(-1, 0) - corners
        lengths = edges.norm(dim=1)
        along = draws[:, : self.candidates] * lengths.sum()
        ends = lengths.cumsum(0)
        edge = torch.searchsorted(ends, along.contiguous()).clamp(max=len(lengths) - 1)
        part = ((along - (ends - lengths)[edge]) / lengths[edge]).clamp(0.05, 0.95)
        contacts = corners[edge] + part[..., None] * edges[edge]
        # the outline runs so that a quarter turn of each edge points out of the T
        normals = torch.stack((edges[edge][..., 1], -edges[edge][..., 0]), -1) / lengths[edge][..., None]
        a, b, c, d = draws[:, self.candidates :].unbind(1)
        wish = torch.stack((130 + 250 * a, 130 + 250 * b), 1) - block
        score = (-_rotate(normals, angle[:, None]) * wish[:, None]).sum(-1)
        spots = block[:, None] + _rotate(contacts, angle[:, None])
        facing = (_rotate(normals, angle[:, None]) * (agent[:, None] - spots)).sum(-1) > _AGENT_RADIUS
        best = (score + 1e4 * facing).argmax(1)
        pick = torch.arange(len(best), device=best.device)
        fresh = {
            "contact": contacts[pick, best],
            "normal": normals[pick, best],
            "speed": self.min_speed + (self.max_speed - self.min_speed) * c,
            "slant": (d - 0.5) * 1.2,
            "left": torch.full_like(carry["left"], 25),
            "pushing": torch.zeros_like(carry["pushing"]),
        }
        return {
            **carry,
            **{
                key: torch.where(rows[:, None] if value.ndim == 2 else rows, value, carry[key])
                for key, value in fresh.items()
            },
        }

    @staticmethod
    def _distance(agent: Tensor, block: Tensor, angle: Tensor, carry: Carry) -> Tensor:
        spot = block + _rotate(carry["contact"] + carry["normal"] * (_AGENT_RADIUS + 20), angle)
        distance: Tensor = (spot - agent).norm(dim=1)
        return distance


def _rotate(vector: Tensor, angle: Tensor) -> Tensor:
    """Rotates ``[..., 2]`` by ``[...]`` radians."""
    x, y = vector.unbind(-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((cos * x - sin * y, sin * x + cos * y), -1)
