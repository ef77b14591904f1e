from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from worldplan.errors import ConfigError, UsageError
from worldplan.planners.objectives import LatentGoal, StateGoal
from worldplan.planners.score import Scoring, score
from worldplan.seeding import Noise


def scored(problems, actions, scoring=None, objective=None):
    objective = objective or problems.objective
    return score(problems.model, problems.state, objective, actions, problems.noise, scoring)


def candidates(count=6, horizon=3):
    return Noise.of(3, 3).normal(count, horizon, 2, dtype=torch.float64)


def test_costs_equal_the_objective_written_out(world):
    problems, actions = world(), candidates()
    scores = scored(problems, actions)
    for b in range(3):
        for n in range(6):
            reached = problems.state["z"][b] + actions[b, n].sum(0)
            cost = (reached - problems.goal[b]).square().sum() + 0.5 * actions[b, n].square().sum()
            torch.testing.assert_close(scores.cost[b, n], cost)
    assert (scores.calls, scores.steps, scores.nan.tolist()) == (1, 18, [0, 0, 0])


def test_only_the_last_step_is_asked_for_unless_the_path_is_read(world):
    problems = world()
    nearest = StateGoal(lambda z: z, (1.0, 1.0), path="min", goal=problems.goal)
    for objective in (problems.objective, nearest, problems.objective + nearest):
        scored(problems, candidates(), objective=objective)
    assert [steps for _, steps in problems.model.seen] == [[3], None, None]


@pytest.mark.parametrize("rows", [1, 5, 6, 13, 18, 100])
@pytest.mark.parametrize("samples", [1, 3])
def test_chunks_stay_under_the_limit_and_change_nothing(world, rows, samples):
    problems = world(std=0.3)
    whole = score(
        problems.model,
        problems.state,
        problems.objective,
        candidates(),
        problems.noise,
        Scoring(None, samples),
    )
    problems.model.seen.clear()
    parts = score(
        problems.model,
        problems.state,
        problems.objective,
        candidates(),
        problems.noise,
        Scoring(rows, samples),
    )
    assert torch.equal(whole.cost, parts.cost)
    assert max(seen for seen, _ in problems.model.seen) <= max(rows, samples)
    assert sum(seen for seen, _ in problems.model.seen) == 3 * 6 * samples
    assert parts.calls == len(problems.model.seen)


def test_samples_are_folded_as_asked(world):
    problems, actions = world(std=0.5), candidates()
    objective = LatentGoal(problems.model.embed, problems.goal)
    draws = problems.noise.at("model").split(6 * 4).normal(4, 2, dtype=torch.float64)
    reached = (problems.state["z"][:, None] + actions.sum(2))[:, :, None] + 0.5 * draws[:, 3].view(3, 6, 4, 2)
    raw = (reached - problems.goal[:, None, None]).square().sum(-1).numpy()

    def folded(**kwargs):
        return scored(problems, actions, Scoring(samples=4, **kwargs), objective).cost.numpy()

    np.testing.assert_allclose(folded(), raw.mean(-1))
    std = raw.std(-1, ddof=1)
    np.testing.assert_allclose(folded(risk="std", risk_weight=2.0), raw.mean(-1) + 2 * std)
    worst = np.sort(raw, -1)[..., -2:].mean(-1)
    np.testing.assert_allclose(folded(risk="cvar", risk_tail=0.3), worst)
    np.testing.assert_allclose(folded(risk="cvar", risk_tail=1.0), raw.mean(-1))


def test_nan_costs_become_infinite_and_are_counted(world):
    problems, actions = world(), candidates()
    actions[1, 2] = math.nan
    actions[1, 4, 0, 0] = math.nan
    scores = scored(problems, actions)
    assert scores.nan.tolist() == [0, 2, 0]
    assert scores.cost[1].isinf().nonzero()[:, 0].tolist() == [2, 4]
    assert scores.cost[[0, 2]].isfinite().all()


def test_the_gradient_reaches_the_actions(world):
    problems, actions = world(), candidates().requires_grad_()
    scored(problems, actions, Scoring(4)).cost.sum().backward()
    reached = problems.state["z"][:, None] + actions.detach().sum(2)
    expected = 2 * (reached - problems.goal[:, None])[:, :, None] + actions.detach()
    torch.testing.assert_close(actions.grad, expected)


def test_an_objective_of_the_wrong_shape_is_named(world):
    problems = world()

    class Flat(LatentGoal):
        def __call__(self, rollout):
            return super().__call__(rollout).sum(1)

    with pytest.raises(UsageError, match="Flat"):
        score(
            problems.model,
            problems.state,
            Flat(problems.model.embed, problems.goal),
            candidates(),
            problems.noise,
        )


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"risk": "max"}, {"rows_per_call": 0}, {"risk_tail": 0.0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        replace(Scoring(), **wrong)
