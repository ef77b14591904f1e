from __future__ import annotations

import math
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

from worldplan.errors import ConfigError
from worldplan.normalize import Normalizer, Statistics
from worldplan.planners.cem import CEM
from worldplan.planners.score import Scoring, score
from worldplan.types import ActionSpec, Plan


def plan(planner, problems, **kwargs):
    return planner(problems.model, problems.state, problems.objective, problems.noise, **kwargs)


def test_reaches_the_closed_form_optimum(world):
    problems = world()
    found = plan(CEM(horizon=3), problems)
    torch.testing.assert_close(found.actions, problems.optimum(3), atol=2e-2, rtol=0)
    best = score(
        problems.model, problems.state, problems.objective, problems.optimum(3)[:, None], problems.noise
    ).cost[:, 0]
    assert ((found.cost - best) >= -1e-12).all() and ((found.cost - best) < 1e-3).all()
    assert found.actions.dtype == torch.float64 and found.stopped_by == "iterations"


def test_equals_a_plain_loop_fed_with_the_same_draws(world):
    """LeWorldModel's recipe, written once more, for one problem at a time."""
    problems, planner = world(), CEM(horizon=2, num_samples=40, num_elites=5, num_iterations=6)
    found = plan(planner, problems)
    for b in range(3):
        z, goal = problems.state["z"][b].numpy(), problems.goal[b].numpy()
        mean, std = np.zeros((2, 2)), np.ones((2, 2))
        for i in range(6):
            draws = problems.noise.at("cem", i).normal(40, 2, 2, dtype=torch.float64)[b].numpy()
            candidates = draws * std + mean
            candidates[0] = mean
            reached = z + candidates.sum(1)
            cost = ((reached - goal) ** 2).sum(1) + 0.5 * (candidates**2).sum((1, 2))
            elites = candidates[np.argsort(cost, kind="stable")[:5]]
            mean, std = elites.mean(0), elites.std(0, ddof=1)
        np.testing.assert_allclose(found.actions[b].numpy(), mean, atol=1e-12)
        np.testing.assert_allclose(found.trace["std"][b].numpy(), std, atol=1e-12)


def test_a_problem_does_not_depend_on_its_batch_mates(world):
    problems, planner = world(), CEM(num_samples=50, num_elites=6, num_iterations=5, tolerance=0.3)
    together = plan(planner, problems)
    for b in range(3):
        alone = plan(planner, problems.row(b))
        assert torch.equal(alone.actions[0], together.actions[b])
        assert torch.equal(alone.cost[0], together.cost[b])
        for key in ("std", "elite_cost", "iterations", "model_steps", "nan_costs"):
            assert torch.equal(alone.trace[key][0], together.trace[key][b]), key


def test_is_deterministic_and_follows_the_seed(world):
    problems, planner = world(), CEM(num_samples=20, num_elites=4, num_iterations=3)
    first, again = plan(planner, problems), plan(planner, problems)
    assert torch.equal(first.actions, again.actions)
    other = plan(planner, replace(problems, noise=replace(problems.noise, seed=1)))
    assert not torch.equal(first.actions, other.actions)


def test_chunking_changes_nothing(world):
    problems = world(std=0.1)
    planner = CEM(num_samples=20, num_elites=4, num_iterations=3, scoring=Scoring(None, samples=2))
    whole = plan(planner, problems)
    for rows in (1, 7, 40, 90):
        small = plan(replace(planner, scoring=Scoring(rows, samples=2)), problems)
        assert torch.equal(whole.actions, small.actions) and torch.equal(whole.cost, small.cost)
        assert small.trace["model_calls"] > whole.trace["model_calls"]
        assert torch.equal(whole.trace["model_steps"], small.trace["model_steps"])


def test_bounds_hold_for_candidates_and_plans(world):
    problems = world(bound=0.1)
    problems = replace(problems, goal=torch.full((3, 2), 5.0, dtype=torch.float64))
    for return_best in ("mean", "best"):
        found = plan(CEM(horizon=3, return_best=return_best), problems)
        bound = torch.tensor(0.1).double()  # bounds are float32
        assert found.actions.abs().max() <= bound
        torch.testing.assert_close(found.actions, bound.expand(3, 3, 2))


def test_bounds_go_through_the_normalizer(world):
    normalizer = Normalizer(1)
    normalizer.fit(Statistics((0.2,), (0.5,), 10))
    problems = world(bound=1.0, normalizer=normalizer)
    far = replace(problems, goal=torch.full((3, 2), 50.0, dtype=torch.float64))
    assert plan(CEM(horizon=2), far).actions.max().item() == pytest.approx((1 - 0.2) / 0.5)


def test_problems_whose_cost_is_nan_stay_where_they_are(world):
    problems = world()
    goal = problems.goal.clone()
    goal[1] = math.nan
    planner = CEM(horizon=2, num_samples=30, num_elites=5, num_iterations=4)
    found = plan(planner, replace(problems, goal=goal))
    assert (found.actions[1] == 0).all() and found.cost[1] == math.inf
    assert (found.trace["std"][1] == 1).all()
    assert found.trace["nan_costs"].tolist() == [0, 30 * 4 + 1, 0]
    whole = plan(planner, problems)
    assert torch.equal(found.actions[[0, 2]], whole.actions[[0, 2]])


def test_candidates_whose_cost_is_nan_are_no_elites(world):
    problems = world(batch_size=1)

    class Half(type(problems.objective)):
        def __call__(self, rollout):
            cost = super().__call__(rollout)
            return torch.where(rollout.actions[..., 0, 0] > 0, math.nan, cost)

    half = Half(problems.objective.parts, problems.objective.weights)
    planner = CEM(horizon=2, num_samples=8, num_elites=8, num_iterations=1)
    found = planner(problems.model, problems.state, half, problems.noise)
    draws = problems.noise.at("cem", 0).normal(8, 2, 2, dtype=torch.float64)[0]
    draws[0] = 0
    kept = draws[draws[:, 0, 0] <= 0]
    assert 2 <= len(kept) < 8
    torch.testing.assert_close(found.actions[0], kept.mean(0))
    torch.testing.assert_close(found.trace["std"][0], kept.std(0))


def test_stops_before_the_deadline(world):
    ticks = count()
    planner = CEM(num_samples=20, num_elites=4, deadline_seconds=5.5, clock=lambda: float(next(ticks)))
    found = plan(planner, world())
    assert found.stopped_by == "deadline" and found.trace["iterations"].tolist() == [5, 5, 5]
    assert found.cost.isfinite().all()


def test_one_iteration_runs_whatever_the_deadline(world):
    ticks = count(step=100)
    planner = CEM(num_samples=20, num_elites=4, deadline_seconds=1.0, clock=lambda: float(next(ticks)))
    assert plan(planner, world()).trace["iterations"].tolist() == [1, 1, 1]


def test_finished_problems_stop_costing(world):
    problems = world()
    goal = problems.goal.clone()
    goal[1] = math.nan  # never converges
    problems.model.seen.clear()
    found = plan(
        CEM(horizon=2, num_samples=60, num_elites=6, num_iterations=25, tolerance=1e-2),
        replace(problems, goal=goal),
    )
    rows = [rows for rows, _ in problems.model.seen]
    assert rows[0] == 3 * 60 and rows[-2] == 60 and rows[-1] == 3  # the last scores the means
    iterations = found.trace["iterations"]
    assert iterations[1] == 25 and (iterations[[0, 2]] < 25).all() and found.stopped_by == "iterations"
    assert torch.equal(found.trace["model_steps"], (iterations * 60 + 1) * 2)
    torch.testing.assert_close(found.actions[0], problems.optimum(2)[0], atol=0.1, rtol=0)


def test_says_when_all_converged(world):
    found = plan(CEM(horizon=2, num_iterations=50, tolerance=0.05), world())
    assert found.stopped_by == "converged"
    costs = found.trace["elite_cost"]
    assert costs.shape == (3, 50) and torch.equal(costs[:, -1], costs[:, 49])
    assert (costs[:, -1] <= costs[:, 0]).all()


def test_best_is_never_worse_than_any_candidate(world):
    problems = world()
    planner = CEM(horizon=2, num_samples=30, num_elites=5, num_iterations=5, return_best="best")
    found = plan(planner, problems)
    reached = problems.state["z"] + found.actions.sum(1)
    cost = (reached - problems.goal).square().sum(1) + 0.5 * found.actions.square().sum((1, 2))
    torch.testing.assert_close(cost, found.cost)
    assert (found.cost <= found.trace["elite_cost"].amin(1)).all()


def test_momentum_and_floor(world):
    problems = world()
    planner = CEM(num_samples=20, num_elites=4, num_iterations=1)
    plain, damped = plan(planner, problems), plan(replace(planner, momentum=0.25), problems)
    torch.testing.assert_close(damped.actions, 0.75 * plain.actions)
    torch.testing.assert_close(damped.trace["std"], 0.75 * plain.trace["std"] + 0.25)
    assert plan(replace(planner, num_iterations=9, min_std=0.4), problems).trace["std"].min() == 0.4


@pytest.mark.parametrize("executed", [0, 1, 3])
def test_begins_at_what_the_last_plan_left(world, executed):
    problems = world()
    old = torch.arange(18, dtype=torch.float64).reshape(3, 3, 2)
    planner = CEM(horizon=3, num_samples=2, num_elites=2, num_iterations=1, init_std=1e-9)
    found = plan(planner, problems, init=Plan(old, torch.zeros(3), trace={"executed": executed}))
    expected = torch.cat((old[:, executed:], torch.zeros(3, executed, 2)), 1)
    torch.testing.assert_close(found.actions, expected, atol=1e-6, rtol=0)


def test_each_row_may_have_executed_another_part(world):
    old = torch.arange(18, dtype=torch.float64).reshape(3, 3, 2)
    planner = CEM(horizon=2, num_samples=2, num_elites=2, num_iterations=1, init_std=1e-9)
    init = Plan(old, torch.zeros(3), trace={"executed": torch.tensor([0, 1, 2])})
    found = plan(planner, world(), init=init).actions
    expected = torch.stack((old[0, :2], old[1, 1:], torch.stack((old[2, 2], torch.zeros(2)))))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_a_plan_of_another_batch_is_refused(world):
    with pytest.raises(ConfigError, match=r"expected: actions \[3, steps, 2\]"):
        plan(CEM(), world(), init=Plan(torch.zeros(2, 5, 2), torch.zeros(2)))


def test_discrete_actions_are_refused_when_called(world):
    problems = world()
    spec = replace(problems.model.spec, action=ActionSpec(1, choices=4))
    with pytest.raises(ConfigError, match="categorical"):
        plan(CEM(), replace(problems, model=replace(problems.model, spec=spec)))


@pytest.mark.parametrize(
    ("name", "value"),
    [("horizon", 0), ("num_elites", 1), ("num_elites", 301), ("init_std", 0.0), ("momentum", 1.0),
     ("return_best", "worst"), ("deadline_seconds", 0.0)],
)  # fmt: skip
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name} of CEM"):
        CEM(**{name: value})


def test_works_in_float32_on_low_precision_states(world):
    problems = world()
    state = {"z": problems.state["z"].to(torch.bfloat16), "count": torch.ones(3, dtype=torch.int64)}
    found = plan(CEM(num_iterations=1), replace(problems, state=state, goal=problems.goal.float()))
    assert found.actions.dtype == torch.float32
