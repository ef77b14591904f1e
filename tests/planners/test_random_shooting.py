from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
import torch

from worldplan.errors import ConfigError
from worldplan.planners.random_shooting import RandomShooting


def plan(planner, problems, **kwargs):
    return planner(problems.model, problems.state, problems.objective, problems.noise, **kwargs)


def test_returns_the_cheapest_of_what_it_drew(world):
    problems = world(bound=2.0)
    found = plan(RandomShooting(horizon=2, num_samples=40, num_iterations=3), problems)
    best = torch.full((3,), torch.inf, dtype=torch.float64)
    for i in range(3):
        draws = problems.noise.at("random_shooting", i).uniform(40, 2, 2, dtype=torch.float64) * 4 - 2
        if i == 0:
            draws[:, 0] = 0
        cost = (problems.state["z"][:, None] + draws.sum(2) - problems.goal[:, None]).square().sum(2)
        best = torch.minimum(best, (cost + 0.5 * draws.square().sum((2, 3))).amin(1))
    torch.testing.assert_close(found.cost, best)
    assert found.actions.abs().max() <= 2
    assert found.trace["model_steps"].tolist() == [240] * 3 and found.trace["model_calls"] == 3


def test_more_samples_come_closer_to_the_optimum(world):
    problems = world(bound=3.0)
    few, many = (
        (plan(RandomShooting(horizon=1, num_samples=n), problems).actions - problems.optimum(1)).abs().max()
        for n in (3, 5000)
    )
    assert many < 0.2 < few


def test_normal_draws_need_no_bounds_and_uniform_ones_do(world):
    problems = world()
    assert plan(RandomShooting(distribution="normal", num_samples=10), problems).cost.isfinite().all()
    with pytest.raises(ConfigError, match="bounds"):
        plan(RandomShooting(num_samples=10), problems)


def test_batch_mates_do_not_matter(world):
    problems, planner = world(), RandomShooting(distribution="normal", num_samples=30)
    together = plan(planner, problems)
    for b in range(3):
        assert torch.equal(plan(planner, problems.row(b)).actions[0], together.actions[b])


def test_nan_everywhere_returns_the_starting_mean(world):
    problems = world()
    lost = replace(problems, goal=torch.full_like(problems.goal, torch.nan))
    found = plan(RandomShooting(distribution="normal", num_samples=10), lost)
    assert (found.actions == 0).all() and found.cost.isinf().all()
    assert found.trace["nan_costs"].tolist() == [10, 10, 10]


def test_stops_before_the_deadline(world):
    ticks = count()
    planner = RandomShooting(
        distribution="normal", num_samples=5, num_iterations=50, deadline_seconds=9.0,
        clock=lambda: float(next(ticks)),
    )  # fmt: skip
    found = plan(planner, world())
    assert found.stopped_by == "deadline" and 1 <= int(found.trace["iterations"][0]) < 6
