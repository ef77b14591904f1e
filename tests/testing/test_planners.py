"""`check_planner` accepts planners that plan, ours among them, and finds each kind of broken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from worldplan.planners.cem import CEM
from worldplan.planners.random_shooting import RandomShooting
from worldplan.seeding import Noise
from worldplan.testing import check_planner
from worldplan.types import Objective, Plan, Rollout, State, WorldModel


@dataclass(frozen=True)
class Shooter:
    """A small planner of its own; `spoil` breaks what it returns."""

    horizon: int = 4
    samples: int = 300
    spoil: Callable[..., Plan] | None = field(default=None, compare=False)
    clamps: bool = True
    counts: bool = True
    scale: float = 0.7

    def __call__(
        self, model: WorldModel, state: State, objective: Objective, noise: Noise, init: Plan | None = None
    ) -> Plan:
        low, high = model.normalizer.bounds(model.spec.action, model.spec.frame_skip)  # type: ignore[attr-defined]
        shape = (self.samples, self.horizon, model.spec.action_dim)
        draws = noise.at("shooter").normal(*shape) * self.scale
        candidates = draws.cumsum(2).clamp(low, high) if self.clamps else draws * 5
        flat = {key: value.repeat_interleave(self.samples, 0) for key, value in state.items()}
        rollout = model.predict(flat, candidates.flatten(0, 1), noise)
        rollout = replace(
            rollout, latent=rollout.latent.unflatten(0, candidates.shape[:2]), actions=candidates, final=None
        )
        raw = objective(rollout)
        cost, best = torch.where(raw.isnan(), torch.inf, raw).min(1)
        chosen = candidates[torch.arange(len(best)), best]
        plan = Plan(chosen, cost, trace={"nan_costs": raw.isnan().sum(1)} if self.counts else {})
        return self.spoil(plan, candidates, raw, noise, state) if self.spoil else plan


def test_our_planners_and_a_small_one_pass() -> None:
    assert "improvement" in check_planner(lambda: CEM(num_samples=64, num_iterations=6, num_elites=8))
    check_planner(lambda: RandomShooting(horizon=3, num_samples=400))
    check_planner(Shooter, horizon=4)
    check_planner(lambda: Shooter(horizon=1))


def _wrong_shape(plan: Plan, *_: Any) -> Plan:
    return replace(plan, actions=plan.actions[:, :1])


def _wrong_cost_shape(plan: Plan, *_: Any) -> Plan:
    return replace(plan, cost=plan.cost[:, None])


def _odd_reason(plan: Plan, *_: Any) -> Plan:
    return replace(plan, stopped_by="because")


def _claims(plan: Plan, *_: Any) -> Plan:
    return replace(plan, cost=plan.cost - 1)


def _lazy(plan: Plan, candidates: Tensor, raw: Tensor, *_: Any) -> Plan:
    return replace(plan, actions=candidates[:, 0], cost=raw[:, 0].nan_to_num(torch.inf))


def _worst(plan: Plan, candidates: Tensor, raw: Tensor, *_: Any) -> Plan:
    cost, place = torch.where(raw.isnan(), -torch.inf, raw).max(1)
    return replace(plan, actions=candidates[torch.arange(len(place)), place], cost=cost.clamp(min=0))


def _picks_nan(plan: Plan, candidates: Tensor, raw: Tensor, *_: Any) -> Plan:
    cost, place = raw.min(1)  # torch's minimum of NaN is NaN
    return replace(plan, actions=candidates[torch.arange(len(place)), place], cost=cost)


def _softmax_of_nan(plan: Plan, candidates: Tensor, raw: Tensor, *_: Any) -> Plan:
    weight = torch.softmax(-100 * raw, 1)
    return replace(plan, actions=torch.einsum("bn,bnha->bha", weight, candidates))


def _shared(plan: Plan, *_: Any) -> Plan:
    return replace(plan, actions=plan.actions + 1e-2 * (plan.actions.mean(0) - plan.actions))


def _global(plan: Plan, *_: Any) -> Plan:
    torch.rand(1)
    return plan


def _random(plan: Plan, candidates: Tensor, raw: Tensor, noise: Noise, state: State) -> Plan:
    _random.calls += 1
    other = candidates[:, _random.calls % 2]
    return replace(plan, actions=other, cost=raw[:, _random.calls % 2])


_random.calls = 0


def _writes_state(plan: Plan, candidates: Tensor, raw: Tensor, noise: Noise, state: State) -> Plan:
    state["x"].add_(0.0)
    state["x"][0, 0] += 1e-3
    return plan


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_wrong_shape, r"actions \[B, H, A\]"),
        (_wrong_cost_shape, "one cost per problem"),
        (_odd_reason, "says why it ended"),
        (_claims, "cost of a plan is that of its actions"),
        (_lazy, "not chosen|better plans than doing nothing"),
        (_worst, "NaN|better plans than doing nothing"),
        (_picks_nan, "NaN is not chosen"),
        (_softmax_of_nan, "NaN costs do not reach|that of its actions"),
        (_shared, "problems beside it|that of its actions"),
        (_global, "noise it is given only"),
        (_random, "gives the same plan|that of its actions"),
        (_writes_state, "leaves the state alone|same plan|that of its actions"),
    ],
)
def test_broken_plans_are_found(spoil: Callable[..., Plan], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_planner(lambda: Shooter(spoil=spoil))


def test_ignored_bounds_uncounted_nans_and_unknown_horizons_are_found() -> None:
    with pytest.raises(AssertionError, match="bounds"):
        check_planner(lambda: Shooter(clamps=False))
    with pytest.raises(AssertionError, match="nan_costs"):
        check_planner(lambda: Shooter(counts=False))
    with pytest.raises(AssertionError, match="the horizon is known"):
        check_planner(lambda: Shooter(horizon=0))
    with pytest.raises(AssertionError, match=r"actions \[B, H, A\]"):
        check_planner(Shooter, horizon=7)


def test_a_planner_that_barely_searches_does_not_pass() -> None:
    with pytest.raises(AssertionError, match=r"better plans than(.|\n)*40% of the way"):
        check_planner(lambda: RandomShooting(horizon=5, num_samples=2))


class Remembers:
    """Keeps its last plan in itself."""

    horizon = 4

    def __init__(self) -> None:
        self.last: Tensor | None = None

    def __repr__(self) -> str:
        return f"Remembers({self.last is not None})"

    def __call__(self, model: Any, state: State, objective: Any, noise: Noise, init: Any = None) -> Plan:
        plan = Shooter()(model, state, objective, noise, init)
        if self.last is not None and self.last.shape == plan.actions.shape:
            plan = replace(plan, actions=self.last, cost=plan.cost)
        self.last = plan.actions
        return plan


def test_a_planner_that_remembers_is_found() -> None:
    with pytest.raises(AssertionError):
        check_planner(Remembers)


class IgnoresInit(Shooter):
    """Breaks on a warm start."""

    def __call__(self, model: Any, state: State, objective: Any, noise: Noise, init: Any = None) -> Plan:
        plan = super().__call__(model, state, objective, noise)
        return plan if init is None else replace(plan, actions=plan.actions * 100)


def test_a_broken_warm_start_is_found() -> None:
    with pytest.raises(AssertionError, match="a warm start keeps the bounds"):
        check_planner(IgnoresInit)


def test_rollouts_reach_the_objective_with_leading_axes() -> None:
    """The poisoned objective of the check must not hide a wrong fold."""

    class Flat(Shooter):
        def __call__(self, model: Any, state: State, objective: Any, noise: Noise, init: Any = None) -> Plan:
            def flat(rollout: Rollout) -> Tensor:
                assert rollout.latent.ndim == 4, rollout.latent.shape
                return objective(rollout)

            return super().__call__(model, state, flat, noise)

    check_planner(Flat)
