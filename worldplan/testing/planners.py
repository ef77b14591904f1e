"""The contract of a planner, checked where the best plan is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from worldplan.seeding import Noise
from worldplan.testing.contracts import (
    copied,
    require,
    require_close,
    require_same,
    require_shape,
    untouched_generators,
)
from worldplan.testing.toys import DoubleIntegrator, Reach
from worldplan.types import Objective, Obs, Plan, Planner, Rollout

_ROWS = (3, 2**40 + 1, 7)
_STOPS = ("iterations", "deadline", "budget", "converged")


def check_planner(
    make_planner: Callable[[], Planner],
    *,
    horizon: int | None = None,
    share: float = 0.4,
    atol: float = 1e-4,
    seed: int = 0,
) -> tuple[str, ...]:
    """Checks a planner for continuous actions on a point mass with a known best plan.

    Args:
        make_planner: makes one; called more than once.
        horizon: H of its plans; None takes ``planner.horizon``.
        share: how much of the way from doing nothing or acting at random, whichever is better, to the
            optimum it must go. A few hundred candidates suffice for the default.
        atol: what batch mates may change, relative to ``max(1, |action|)``.
        seed: of the problems and the noise.

    Returns:
        The contracts that were exercised.

    Raises:
        AssertionError: one of them is broken.
    """
    planner = make_planner()
    steps = horizon or int(getattr(planner, "horizon", 0))
    require(steps > 0, "the horizon is known", "planner.horizon, or horizon=...", steps)
    case = _Case.of(planner, steps, atol, seed)
    checks: dict[str, Callable[[_Case], None]] = {
        "shapes": _check_shapes,
        "bounds": _check_bounds,
        "cost": _check_cost,
        "purity": _check_purity,
        "batch": _check_batch,
        "nan": _check_nan,
        "warm start": _check_warm_start,
        "improvement": lambda case: _check_improvement(case, share),
    }
    for check in checks.values():
        check(case)
    other = replace(case, planner=make_planner()).plan()
    contract = "equal hyper-parameters give equal plans"
    require_close(other.actions, case.plan().actions, 0.0, contract)
    return tuple(checks)


@dataclass(frozen=True)
class _Case:
    planner: Planner
    model: DoubleIntegrator
    start: Tensor
    objective: Objective
    goal: Tensor
    noise: Noise
    horizon: int
    atol: float

    @classmethod
    def of(cls, planner: Planner, horizon: int, atol: float, seed: int) -> _Case:
        """Goals that a constant push reaches: so the best plan keeps well inside the bounds."""
        model, noise = DoubleIntegrator(), Noise.of(seed, _ROWS)
        start = noise.at("start").normal(*model.spec.latent_shape)
        size = 0.3 + 0.6 * noise.at("size").uniform(model.dim)
        push = size * (2.0 * noise.at("sign").integers(2, model.dim) - 1)
        push = push.repeat(1, model.spec.frame_skip)[:, None].expand(-1, horizon, -1)
        goal = model.predict({"x": start}, push, noise).latent[:, -1]
        return cls(planner, model, start, Reach(goal), goal, noise.at("plan"), horizon, atol)

    def plan(self, init: Plan | None = None) -> Plan:
        return self.planner(self.model, {"x": self.start}, self.objective, self.noise, init)

    def cost(self, actions: Tensor) -> Tensor:
        """Costs ``[B, N]`` of candidates ``[B, N, H, A]``."""
        rows, count = actions.shape[:2]
        rollout = self.model.predict(
            {"x": self.start.repeat_interleave(count, 0)}, actions.flatten(0, 1), self.noise
        )
        latent = rollout.latent.view(rows, count, *rollout.latent.shape[1:])
        return self.objective(replace(rollout, latent=latent, actions=actions, final=None))

    def bounds(self) -> tuple[Tensor, Tensor]:
        return self.model.normalizer.bounds(self.model.spec.action, self.model.spec.frame_skip)

    def select(self, rows: list[int]) -> _Case:
        index = torch.tensor(rows)
        return replace(
            self,
            start=self.start[index],
            objective=self.objective.select(index),
            goal=self.goal[index],
            noise=self.noise.select(index),
        )


def _check_shapes(case: _Case) -> None:
    plan = case.plan()
    shape = (len(_ROWS), case.horizon, case.model.spec.action_dim)
    require_shape(plan.actions, shape, "a plan has actions [B, H, A]")
    require_shape(plan.cost, shape[:1], "a plan has one cost per problem")
    require(plan.stopped_by in _STOPS, "a plan says why it ended", ", ".join(_STOPS), plan.stopped_by)
    require(bool(plan.actions.isfinite().all()), "planned actions are finite", "finite", plan.actions)


def _check_bounds(case: _Case) -> None:
    _require_inside(case, case.plan(), "planned actions keep the bounds of the model's units")
    # a goal out of reach drives every search against the bounds
    far = replace(case, objective=Reach(case.goal + 1e3))
    _require_inside(far, far.plan(), "planned actions keep the bounds where better ones lie outside")


def _require_inside(case: _Case, plan: Plan, contract: str) -> None:
    low, high = case.bounds()
    slack = 1e-5
    inside = bool(((plan.actions >= low - slack) & (plan.actions <= high + slack)).all())
    found = f"{float(plan.actions.min()):g}..{float(plan.actions.max()):g}"
    require(inside, contract, f"{float(low.min()):g}..{float(high.max()):g}", found)


def _check_cost(case: _Case) -> None:
    plan = case.plan()
    contract = "the cost of a plan is that of its actions"
    require_close(plan.cost.float(), case.cost(plan.actions[:, None])[:, 0], max(case.atol, 1e-4), contract)


def _check_purity(case: _Case) -> None:
    state = {"x": case.start}
    before, hyper = copied(state), repr(case.planner)
    with untouched_generators("the planner"):
        first = case.planner(case.model, state, case.objective, case.noise)
        again = case.planner(case.model, state, case.objective, case.noise)
    require_close(again.actions, first.actions, 0.0, "planning twice with the same noise gives the same plan")
    require_same(state, before, "planning leaves the state alone")
    require(repr(case.planner) == hyper, "planning changes nothing in the planner", hyper, repr(case.planner))


def _check_batch(case: _Case) -> None:
    together = case.plan().actions
    contract = "a problem's plan does not depend on the problems beside it"
    for row in range(len(_ROWS)):
        require_close(case.select([row]).plan().actions, together[[row]], case.atol, contract)
    order = [2, 0, 1]
    require_close(case.select(order).plan().actions, together[order], case.atol, contract)


@dataclass(frozen=True, eq=False)
class _Poisoned:
    """NaN for candidates that begin with a positive action, and for all of some problems."""

    objective: Objective
    hopeless: Tensor  # bool [B]

    def __call__(self, rollout: Rollout) -> Tensor:
        poisoned = (rollout.actions[:, :, 0, 0] > 0) | self.hopeless[:, None]
        return torch.where(poisoned, torch.nan, self.objective(rollout))

    def at(self, obs: Obs) -> _Poisoned:
        return replace(self, objective=self.objective.at(obs))

    def select(self, rows: Tensor) -> _Poisoned:
        return replace(self, objective=self.objective.select(rows), hopeless=self.hopeless[rows])


def _check_nan(case: _Case) -> None:
    hopeless = torch.tensor([False, False, True])
    sick = replace(case, objective=_Poisoned(case.objective, hopeless))
    plan = sick.plan()
    require(bool(plan.actions.isfinite().all()), "NaN costs do not reach the actions", "finite", plan.actions)
    _require_inside(sick, plan, "NaN costs do not push actions out of the bounds")
    finite = bool(plan.cost[~hopeless].isfinite().all())
    require(finite, "a candidate whose cost is NaN is not chosen", "finite costs", plan.cost)
    require(not plan.cost.isnan().any(), "a NaN cost counts as +inf", "inf", plan.cost)
    counted = plan.trace.get("nan_costs")
    contract = 'NaN costs are counted in trace["nan_costs"], int64 [B]'
    require_shape(counted, (len(_ROWS),), contract)
    require(bool(torch.as_tensor(counted)[2] > 0), contract, "more than 0", counted)


def _check_warm_start(case: _Case) -> None:
    first = case.plan()
    before = copied({"actions": first.actions})
    again = case.plan(first)
    require_shape(again.actions, tuple(first.actions.shape), "a plan can start from an earlier one")
    _require_inside(case, again, "a warm start keeps the bounds")
    require_same({"actions": first.actions}, before, "a warm start leaves the earlier plan alone")


def _check_improvement(case: _Case, share: float) -> None:
    best = case.model.optimum(case.start, case.goal, case.horizon, Reach.effort)
    low, high = case.bounds()
    draws = case.noise.at("reference").uniform(256, case.horizon, case.model.spec.action_dim)
    random = case.cost(low + draws * (high - low)).mean(1)
    nothing = case.cost(torch.zeros_like(best)[:, None])[:, 0]
    reference = torch.minimum(random, nothing)
    optimum = case.cost(best[:, None])[:, 0]
    reached = case.cost(case.plan().actions[:, None])[:, 0]
    gone = float((reference - reached).sum() / (reference - optimum).sum())
    contract = "a planner finds better plans than doing nothing or acting at random"
    require(gone >= share, contract, f"{share:.0%} of the way to the optimum", f"{gone:.0%}")
