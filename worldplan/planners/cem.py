"""The cross-entropy method: sample, keep the elites, refit, repeat.

A Gaussian over action sequences, independent per step and dimension, starts at ``N(mean, init_std)``.
Each iteration draws N sequences from it, clamps them to the bounds, scores them, and refits mean and
standard deviation (unbiased) to the E cheapest. The final mean is the plan.

With the defaults this is the planner of LeWorldModel, apart from the bounds, which it ignores.
Source: Rubinstein and Kroese, "The Cross-Entropy Method", 2004; LeWorldModel's planning code.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from worldplan import tree
from worldplan.planners.score import Scoring, score
from worldplan.planners.settings import check
from worldplan.planners.space import Space, continuous_space
from worldplan.seeding import Noise
from worldplan.types import Objective, Plan, State, WorldModel


@dataclass(frozen=True)
class CEM:
    """Cross-entropy method over B problems at once.

    A problem is finished early when `tolerance` is positive and either its largest standard
    deviation is at most `tolerance`, or the mean cost of its elites moved by at most `tolerance`
    times its size in the last `patience` iterations. Finished problems cost nothing more.

    Attributes:
        horizon: H, model steps ahead.
        num_samples: N, candidates per iteration.
        num_iterations: most refits.
        num_elites: E, candidates that refit the Gaussian.
        init_std: standard deviation to begin with, in model units.
        min_std: floor of the standard deviation, in model units.
        momentum: share of the old mean and standard deviation that a refit keeps.
        keep_mean: candidate 0 is the current mean.
        return_best: ``"mean"`` returns the final mean, ``"best"`` the cheapest candidate ever drawn.
        tolerance: see above; 0 never finishes early.
        patience: iterations over which the cost must have stood still.
        deadline_seconds: no iteration begins that would, judged by the slowest so far, end later;
            the first always runs. None sets no deadline.
        scoring: memory and risk.
        clock: seconds, monotonic.
    """

    horizon: int = 5
    num_samples: int = 300
    num_iterations: int = 30
    num_elites: int = 30
    init_std: float = 1.0
    min_std: float = 0.0
    momentum: float = 0.0
    keep_mean: bool = True
    return_best: Literal["mean", "best"] = "mean"
    tolerance: float = 0.0
    patience: int = 3
    deadline_seconds: float | None = None
    scoring: Scoring = Scoring()
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuses settings that cannot be meant."""
        deadline = self.deadline_seconds
        check(
            self,
            horizon=(self.horizon >= 1, "at least 1"),
            num_iterations=(self.num_iterations >= 1, "at least 1"),
            num_elites=(2 <= self.num_elites <= self.num_samples, f"2..{self.num_samples}, the samples"),
            init_std=(self.init_std > 0, "positive"),
            min_std=(self.min_std >= 0, "0 or more"),
            momentum=(0 <= self.momentum < 1, "in [0, 1)"),
            return_best=(self.return_best in ("mean", "best"), "mean or best"),
            tolerance=(self.tolerance >= 0, "0 or more"),
            patience=(self.patience >= 1, "at least 1"),
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

        Random: the candidates, one draw ``[B, N, H, A]`` per iteration under the name ``"cem"``.

        Args:
            model: predicts.
            state: rows B.
            objective: bound to the goals of the B problems.
            noise: rows B.
            init: an earlier plan; the mean begins at what ``trace["executed"]`` left of it, and at
                zero for the rest.

        Returns:
            A plan whose trace has ``std [B, H, A]`` of the final Gaussian, ``elite_cost
            [B, num_iterations]`` (finished problems repeat their last), ``iterations``,
            ``model_steps`` and ``nan_costs``, int64 ``[B]``, and ``model_calls``, a number.

        Raises:
            ConfigError: the model takes discrete actions, or `init` does not fit.
        """
        space = continuous_space("CEM", model, state, self.horizon, init)
        everyone = _Problems(state, objective, noise)
        active, belief = everyone, self._begin(space)
        rows = torch.arange(noise.batch_size, device=space.centre.device)
        begun, calls, stopped_by = [self.clock()], 0, "iterations"
        for iteration in range(self.num_iterations):
            if self._late(begun):
                stopped_by = "deadline"
                break
            now, used = self._iterate(iteration, tree.select(belief, rows), space, model, active)
            belief, calls = tree.write(belief, rows, now), calls + used
            unfinished = ~self._finished(now, iteration)
            if not unfinished.all():
                kept = unfinished.nonzero()[:, 0]
                rows, active = rows[kept], active.select(kept)
                if not len(rows):
                    stopped_by = "converged"
                    break
            begun.append(self.clock())
        return self._plan(belief, calls, stopped_by, model, everyone)

    def _begin(self, space: Space) -> dict[str, Tensor]:
        """What is believed about each problem before any candidate was drawn."""
        batch_size = space.centre.shape[0]
        zeros = torch.zeros(batch_size, dtype=torch.int64, device=space.centre.device)
        unknown = space.centre.new_full((batch_size,), math.inf)
        return {
            "mean": space.centre,
            "std": torch.full_like(space.centre, self.init_std),
            "best": space.centre,
            "best_cost": unknown,
            "elite_cost": unknown[:, None].repeat(1, self.num_iterations),
            "iterations": zeros,
            "model_steps": zeros,
            "nan_costs": zeros,
        }

    def _iterate(
        self, iteration: int, belief: Mapping[str, Tensor], space: Space, model: WorldModel, active: _Problems
    ) -> tuple[dict[str, Tensor], int]:
        """One round of sampling and refitting; returns the new belief and the model calls it took."""
        noise = active.noise.at("cem", iteration)
        mean, std = belief["mean"], belief["std"]
        draws = noise.normal(self.num_samples, *mean.shape[1:], dtype=mean.dtype, device=mean.device)
        candidates = draws * std[:, None] + mean[:, None]  # [B, N, H, A]
        if self.keep_mean:
            candidates[:, 0] = mean
        candidates = space.clamp(candidates)
        scores = score(model, active.state, active.objective, candidates, noise, self.scoring)
        cost = scores.cost.to(mean.dtype)
        order = cost.argsort(dim=1, stable=True)[:, : self.num_elites]
        elites = candidates[torch.arange(len(order), device=order.device)[:, None], order]
        elite_cost = cost.gather(1, order)
        mean, std, mean_cost = self._refit(elites, elite_cost, mean, std)
        found, found_cost = elites[:, 0], elite_cost[:, 0]
        better = found_cost < belief["best_cost"]
        costs = belief["elite_cost"].clone()
        costs[:, iteration:] = mean_cost[:, None]
        return {
            "mean": space.clamp(mean),
            "std": std,
            "best": torch.where(better[:, None, None], found, belief["best"]),
            "best_cost": torch.where(better, found_cost, belief["best_cost"]),
            "elite_cost": costs,
            "iterations": belief["iterations"] + 1,
            "model_steps": belief["model_steps"] + scores.steps,
            "nan_costs": belief["nan_costs"] + scores.nan,
        }, scores.calls

    def _refit(
        self, elites: Tensor, cost: Tensor, mean: Tensor, std: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and unbiased standard deviation of the elites, and their mean cost.

        Infinite costs are no elites. Where none is left the Gaussian stays as it was, and where one
        is left its width does.
        """
        counted = cost < math.inf  # [B, E]
        count = counted.sum(1).to(mean.dtype)
        weight = counted[..., None, None].to(mean.dtype)
        many = count[:, None, None]
        centre = (elites * weight).sum(1) / many.clamp(min=1)
        variance = ((elites - centre[:, None]).square() * weight).sum(1) / (many - 1).clamp(min=1)
        fresh_mean = torch.where(many >= 1, centre, mean)
        fresh_std = torch.where(many >= 2, variance.sqrt(), std)
        keep = self.momentum
        mean_cost = torch.where(counted, cost, 0.0).sum(1) / count
        return (
            (1 - keep) * fresh_mean + keep * mean,
            ((1 - keep) * fresh_std + keep * std).clamp(min=self.min_std),
            torch.where(count >= 1, mean_cost, math.inf),
        )

    def _finished(self, belief: Mapping[str, Tensor], iteration: int) -> Tensor:
        """Bool ``[B]``: problems with nothing left to gain."""
        cost = belief["elite_cost"]
        if self.tolerance <= 0:
            return torch.zeros(len(cost), dtype=torch.bool, device=cost.device)
        narrow = belief["std"].amax((1, 2)) <= self.tolerance
        if iteration < self.patience:
            return narrow
        now, before = cost[:, iteration], cost[:, iteration - self.patience]
        return narrow | ((now - before).abs() <= self.tolerance * now.abs())

    def _late(self, begun: Sequence[float]) -> bool:
        """True where one more iteration, as slow as the slowest, would pass the deadline."""
        if self.deadline_seconds is None or len(begun) == 1:
            return False
        slowest = max(after - before for before, after in pairwise(begun))
        return begun[-1] - begun[0] + slowest > self.deadline_seconds

    def _plan(
        self, belief: dict[str, Tensor], calls: int, stopped_by: str, model: WorldModel, everyone: _Problems
    ) -> Plan:
        """Chooses what to return; a mean was never drawn, so its cost is asked for."""
        trace: dict[str, Any] = {
            key: belief[key] for key in ("std", "elite_cost", "iterations", "model_steps", "nan_costs")
        }
        if self.return_best == "best":
            return Plan(belief["best"], belief["best_cost"], stopped_by, {**trace, "model_calls": calls})
        mean, noise = belief["mean"], everyone.noise.at("cem", "final")
        scores = score(model, everyone.state, everyone.objective, mean[:, None], noise, self.scoring)
        trace["model_steps"] = trace["model_steps"] + scores.steps
        trace["nan_costs"] = trace["nan_costs"] + scores.nan
        trace["model_calls"] = calls + scores.calls
        return Plan(mean, scores.cost[:, 0], stopped_by, trace)


@dataclass(frozen=True)
class _Problems:
    """The problems being solved, one per row."""

    state: State
    objective: Objective
    noise: Noise

    def select(self, rows: Tensor) -> _Problems:
        noise = self.noise.select(rows.to(self.noise.rows.device))
        return _Problems(tree.select(self.state, rows), self.objective.select(rows), noise)
