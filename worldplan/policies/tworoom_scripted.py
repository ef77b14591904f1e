"""A navigator for Two-Room: walks to places in both rooms, through the door where need be.

Without goals it is the scripted source of Two-Room data: it draws a place, walks there, and draws the
next. With ``goal=True`` it walks to the goal instead; noise and repeated actions grade its quality.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from worldplan.envs import tworoom
from worldplan.seeding import Noise
from worldplan.types import GOAL, Carry, Obs

_CLEARANCE = tworoom.WALL_HALF + tworoom.RADIUS  # from the middle of the wall to the agent's centre
_LANE = 10.0  # how far from the door's middle the agent may enter, px
_ARRIVED = 6.0  # px


@dataclass(frozen=True)
class TwoRoomScripted:
    """Walks to random places or to the goal; needs ``state [B, 2]``, with `goal` also ``goal/state``.

    Attributes:
        action_noise: standard deviation added to every action.
        repeat: probability of repeating the action before instead.
        min_speed: slowest walk drawn, as a share of the largest step.
        max_speed: fastest walk drawn.
        patience: steps after which another place is drawn.
        goal: walk to the goal, at the fastest speed.
        door: height of the middle of the door, px.
        name: for records.
    """

    action_noise: float = 0.3
    repeat: float = 0.05
    min_speed: float = 0.6
    max_speed: float = 1.0
    patience: int = 60
    goal: bool = False
    door: float = tworoom.DOOR
    name: str = "scripted"

    @property
    def requires(self) -> tuple[str, ...]:
        """Keys an observation must have."""
        return ("state", f"{GOAL}state") if self.goal else ("state",)

    def initial(self, batch_size: int) -> Carry:
        """No place chosen and no action to repeat yet."""
        return {
            "target": torch.zeros(batch_size, 2),
            "speed": torch.full((batch_size,), self.max_speed),
            "left": torch.zeros(batch_size, dtype=torch.int64),
            "action": torch.zeros(batch_size, 2),
        }

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """One action per row, ``[B, 1, 2]``."""
        here = obs["state"]
        fresh = torch.ones(len(here), 1, dtype=torch.bool, device=here.device)
        if self.goal:
            carry = {**carry, "target": obs[f"{GOAL}state"]}
        else:
            carry, fresh = self._redraw(here, carry, noise)
        way = self._waypoint(here, carry["target"]) - here
        distance = way.norm(dim=1, keepdim=True).clamp_min(1e-6)
        stride = (distance / tworoom.ACTION_SCALE).clamp(max=1) * carry["speed"][:, None]
        wished = way / distance * stride + self.action_noise * noise.at("action").normal(2)
        again = (noise.at("repeat").uniform(1) < self.repeat) & ~fresh
        action = torch.where(again, carry["action"], wished.clamp(-1, 1))
        return action[:, None], {**carry, "action": action, "left": carry["left"] - 1}

    def _redraw(self, here: Tensor, carry: Carry, noise: Noise) -> tuple[Carry, Tensor]:
        """Another place where the last one is reached or given up."""
        spent = (carry["left"] <= 0) | ((carry["target"] - here).norm(dim=1) < _ARRIVED)
        draws = noise.at("target").uniform(4)
        # a room and a place in it: the wall itself is never drawn
        x = tworoom.LOW + (tworoom.WALL_X - _CLEARANCE - tworoom.LOW) * draws[:, 0]
        x = torch.where(draws[:, 1] < 0.5, x, tworoom.WORLD - x)
        y = tworoom.LOW + (tworoom.HIGH - tworoom.LOW) * draws[:, 2]
        speed = self.min_speed + (self.max_speed - self.min_speed) * draws[:, 3]
        first = (carry["left"] <= 0)[:, None] & (carry["target"] == 0).all(1, keepdim=True)
        return {
            **carry,
            "target": torch.where(spent[:, None], torch.stack((x, y), 1), carry["target"]),
            "speed": torch.where(spent, speed, carry["speed"]),
            "left": torch.where(spent, self.patience, carry["left"]),
        }, first

    def _waypoint(self, here: Tensor, target: Tensor) -> Tensor:
        """The target itself, or the next corner of the way through the door."""
        side, there = (torch.where(p[:, 0] < tworoom.WALL_X, -1.0, 1.0) for p in (here, target))
        in_wall = (here[:, 0] - tworoom.WALL_X).abs() < _CLEARANCE
        aligned = (here[:, 1] - self.door).abs() < _LANE
        through = aligned | in_wall
        x = tworoom.WALL_X + torch.where(through, there, side) * (_CLEARANCE + 2)
        gate = torch.stack((x, torch.full_like(x, self.door)), 1)
        direct = (side == there) & ~(in_wall & ~self._clear(here, target))
        return torch.where(direct[:, None], target, gate)

    def _clear(self, here: Tensor, target: Tensor) -> Tensor:
        """Whether a target can be seen from inside the door: it lies straight ahead."""
        return (target[:, 1] - self.door).abs() < tworoom.DOOR_HALF - tworoom.RADIUS
