"""Random shooting: draw sequences, keep the cheapest.

The baseline every search has to beat at equal numbers of model steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from worldplan.errors import ConfigError
from worldplan.planners.score import Scoring, score
from worldplan.planners.settings import check
from worldplan.planners.space import Space, continuous_space
from worldplan.seeding import Noise
from worldplan.types import Objective, Plan, State, WorldModel


@dataclass(frozen=True)
class RandomShooting:
    """Random shooting over B problems at once.

    Attributes:
        horizon: H, model steps ahead.
        num_samples: N, candidates per iteration.
        num_iterations: rounds of N candidates; all rounds draw from the same distribution.
        distribution: ``"uniform"`` between the bounds, or ``"normal"`` around the starting mean.
        std: standard deviation of ``"normal"``, in model units.
        keep_mean: candidate 0 of the first round is the starting mean.
        deadline_seconds: no round begins that would, judged by the slowest so far, end later; the
            first always runs. None sets no deadline.
        scoring: memory and risk.
        clock: seconds, monotonic.
    """

    horizon: int = 5
    num_samples: int = 1000
    num_iterations: int = 1
    distribution: Literal["uniform", "normal"] = "uniform"
    std: float = 1.0
    keep_mean: bool = True
    deadline_seconds: float | None = None
    scoring: Scoring = Scoring()
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuses settings that cannot be meant."""
        deadline = self.deadline_seconds
        check(
            self,
            horizon=(self.horizon >= 1, "at least 1"),
            num_samples=(self.num_samples >= 1, "at least 1"),
            num_iterations=(self.num_iterations >= 1, "at least 1"),
            distribution=(self.distribution in ("uniform", "normal"), "uniform or normal"),
            std=(self.std > 0, "positive"),
            deadline_seconds=(deadline is None or deadline > 0, "positive, or None"),
        )

    @torch.no_grad()
    def __call__(
        self,
        model: WorldModel,
        state: State,
        objective: Objective,
        noise: Noise,
        init: Plan | None = None,
    ) -> Plan:
        """Plans for the B rows of `state`.

        Random: the candidates, one draw ``[B, N, H, A]`` per round under the name
        ``"random_shooting"``.

        Args:
            model: predicts.
            state: rows B.
            objective: bound to the goals of the B problems.
            noise: rows B.
            init: an earlier plan; the starting mean is what ``trace["executed"]`` left of it, and
                zero for the rest.

        Returns:
            A plan whose trace has ``iterations``, ``model_steps`` and ``nan_costs``, int64 ``[B]``,
            and ``model_calls``, a number.

        Raises:
            ConfigError: the model takes discrete actions, `init` does not fit, or a uniform draw has
                no bounds.
        """
        space = continuous_space("random shooting", model, state, self.horizon, init)
        best, cost = space.centre, space.centre.new_full((noise.batch_size,), math.inf)
        nan, calls, steps, rounds = torch.zeros_like(cost, dtype=torch.int64), 0, 0, 0
        begun, slowest = self.clock(), 0.0
        for iteration in range(self.num_iterations):
            before = self.clock()
            if self.deadline_seconds and iteration and before - begun + slowest > self.deadline_seconds:
                break
            here = noise.at("random_shooting", iteration)
            candidates = self._candidates(iteration, space, here)
            scores = score(model, state, objective, candidates, here, self.scoring)
            found_cost, place = scores.cost.to(cost.dtype).min(1)
            found = candidates[torch.arange(len(place), device=place.device), place]
            best = torch.where((found_cost < cost)[:, None, None], found, best)
            cost = torch.minimum(cost, found_cost)
            nan = nan + scores.nan
            calls, steps, rounds = calls + scores.calls, steps + scores.steps, rounds + 1
            slowest = max(slowest, self.clock() - before)
        trace = {
            "iterations": torch.full_like(nan, rounds),
            "model_steps": torch.full_like(nan, steps),
            "nan_costs": nan,
            "model_calls": calls,
        }
        return Plan(best, cost, "iterations" if rounds == self.num_iterations else "deadline", trace)

    def _candidates(self, iteration: int, space: Space, noise: Noise) -> Tensor:
        """Draws ``[B, N, H, A]``."""
        centre = space.centre
        shape = (self.num_samples, *centre.shape[1:])
        if self.distribution == "normal":
            draws = noise.normal(*shape, dtype=centre.dtype, device=centre.device)
            candidates = space.clamp(centre[:, None] + self.std * draws)
        else:
            if not bool((space.high - space.low).isfinite().all()):
                raise ConfigError(
                    "a uniform draw needs bounds",
                    expected="an action space with lower and upper bounds",
                    found="an unbounded one",
                    fix='RandomShooting(distribution="normal")',
                )
            draws = noise.uniform(*shape, dtype=centre.dtype, device=centre.device)
            candidates = space.low + draws * (space.high - space.low)
        if self.keep_mean and iteration == 0:
            candidates[:, 0] = centre
        return candidates
