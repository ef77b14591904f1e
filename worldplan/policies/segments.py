"""Data collection by planning on the true dynamics: segments toward goals drawn along the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from worldplan.envs.registry import Task
from worldplan.envs.simulator_model import SimulatorModel
from worldplan.errors import ConfigError
from worldplan.policies.planning import PlanningPolicy
from worldplan.seeding import Noise
from worldplan.types import GOAL, Carry, Objective, Obs, Planner


@dataclass(frozen=True)
class PlannedSegments:
    """Draws a goal, plans toward it in the simulator for a while, draws the next.

    Purposeful where play is not: what it does with an object leads somewhere. The goal of the
    environment is not looked at.

    Attributes:
        task: with settable states; goals are drawn as its environment draws them.
        planner: searches, in environment units.
        objective: a `StateGoal` of the task's states.
        segment: decisions per goal.
        workers: processes that simulate; 0 simulates in this one.
        name: for records.

    Raises:
        ConfigError: a segment has no decision.
        UsageError: the task's states cannot be set.
    """

    task: Task
    planner: Planner
    objective: Objective
    segment: int = 2
    workers: int = 0
    name: str = "planned"
    _inner: PlanningPolicy = field(init=False, repr=False, compare=False)
    _world: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Makes the simulators that predict and that draw goals."""
        if self.segment < 1:
            raise ConfigError("a segment has decisions", expected="1 or more", found=str(self.segment))
        model = SimulatorModel(self.task, workers=self.workers)
        object.__setattr__(self, "_inner", PlanningPolicy(model, self.planner, self.objective))
        object.__setattr__(self, "_world", self.task.make(pixels=False))

    @property
    def requires(self) -> tuple[str, ...]:
        """Keys an observation must have."""
        return ("state",)

    def initial(self, batch_size: int) -> Carry:
        """No goal yet."""
        return {
            "planning": self._inner.initial(batch_size),
            "left": torch.zeros(batch_size, dtype=torch.int64),
            "goal": torch.zeros(batch_size, len(self.task.state_names)),
        }

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """A whole plan of actions per row.

        Random: goals under the name ``"segment"``, and what the planner draws.
        """
        fresh, goal = carry["left"] <= 0, carry["goal"].clone()
        seeds = noise.at("segment").integers(2**31 - 1)
        for row in fresh.nonzero()[:, 0].tolist():
            drawn, _ = self._world.reset(seed=int(seeds[row]))
            goal[row] = torch.from_numpy(drawn[f"{GOAL}state"])
        toward = {"state": obs["state"], f"{GOAL}state": goal.to(obs["state"].device)}
        actions, planning = self._inner.act(toward, carry["planning"], noise)
        left = torch.where(fresh, self.segment, carry["left"]) - 1
        return actions, {"planning": planning, "left": left, "goal": goal}
