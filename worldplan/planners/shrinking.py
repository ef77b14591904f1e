"""Model-predictive control with a shrinking horizon, around any planner.

With a fixed horizon H every decision looks H steps ahead, so a cost on the last step lets the end
recede for ever: a goal that the first plan would have reached in H steps is, after one of them, again
put off by H. Here the end stays where the first plan put it. Decisions plan H, H-e, H-2e, ... steps,
each correcting what is left of the plan from what was seen since, and begin again with H.
"""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import torch

from worldplan.errors import ConfigError
from worldplan.planners.settings import check
from worldplan.seeding import Noise
from worldplan.types import Objective, Plan, Planner, State, WorldModel


@dataclass(frozen=True)
class ShrinkingHorizon:
    """Plans what an earlier plan has left to do, and a whole horizon where nothing is left.

    The first decision, and each that finds its earlier plan done, is that of `planner`; those between
    search only the remaining steps, beginning at the remaining actions.

    Attributes:
        planner: searches; a dataclass with a `horizon`.
        execute: e, model steps a policy runs per decision unless it says otherwise.
        shortest: fewest steps planned; with fewer left, a whole horizon begins. At least `execute`.
    """

    planner: Any
    execute: int = 1
    shortest: int = 1

    def __post_init__(self) -> None:
        """Refuses a planner without a horizon, and settings that contradict it."""
        horizon = getattr(self.planner, "horizon", None)
        if not is_dataclass(self.planner) or not isinstance(horizon, int):
            raise ConfigError(
                "only a planner with a horizon can have it shrink",
                expected="a dataclass with the field horizon, such as CEM",
                found=type(self.planner).__name__,
            )
        check(
            self,
            execute=(1 <= self.execute <= horizon, f"1..{horizon}, the planner's horizon"),
            shortest=(self.execute <= self.shortest <= horizon, f"{self.execute}..{horizon}"),
        )

    @property
    def horizon(self) -> int:
        """H of a first decision."""
        return int(self.planner.horizon)

    def __call__(
        self,
        model: WorldModel,
        state: State,
        objective: Objective,
        noise: Noise,
        init: Plan | None = None,
    ) -> Plan:
        """Plans for the B rows of `state`; random, errors and trace are those of `planner`.

        Args:
            model: predicts.
            state: rows B.
            objective: bound to the goals of the B problems.
            noise: rows B.
            init: the plan before, whose ``trace["executed"]`` says how many steps of it were run, of
                every row alike.
        """
        left = self.left(init)
        planner: Planner = self.planner if left == self.horizon else replace(self.planner, horizon=left)
        return planner(model, state, objective, noise, init)

    def left(self, init: Plan | None) -> int:
        """Steps to plan after `init`.

        Raises:
            ConfigError: rows have run different numbers of its steps.
        """
        if init is None:
            return self.horizon
        executed = torch.as_tensor(init.trace.get("executed", 0)).flatten()
        if int(executed.min()) != int(executed.max()):
            raise ConfigError(
                "a shrinking horizon is shared by all rows of a batch",
                expected="rows that have run the same number of steps",
                found=f"{int(executed.min())} to {int(executed.max())}",
                fix="plan for rows that began together",
            )
        left = init.actions.shape[1] - int(executed[0])
        return left if left >= self.shortest else self.horizon
