"""The toy world: its dynamics against physics, its optimum against a search."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from worldplan.protocol import ModelSpec
from worldplan.seeding import Noise
from worldplan.testing import DoubleIntegrator, Reach, random_actions, random_obs
from worldplan.types import ActionSpec, Rollout


def test_a_constant_push_falls_like_a_stone() -> None:
    world = DoubleIntegrator(dim=1, frame_skip=2, dt=0.1)
    push = world.normalizer.normalize(torch.full((1, 5, 2), 0.8))
    path = world.predict({"x": torch.zeros(1, 2)}, push, Noise.of(0, 1)).latent[0]
    seconds = torch.arange(6) * 0.2
    assert torch.allclose(path[:, 0], 0.8 * seconds**2 / 2, atol=1e-6)
    assert torch.allclose(path[:, 1], 0.8 * seconds, atol=1e-6)


@pytest.mark.parametrize("horizon", [1, 5])
def test_the_optimum_is_where_the_gradient_vanishes(horizon: int) -> None:
    world, noise = DoubleIntegrator(), Noise.of(3, 4)
    start, goal = noise.at("a").normal(4, dtype=torch.float64), noise.at("b").normal(4, dtype=torch.float64)
    world.normalizer.double()
    best = world.optimum(start, goal, horizon, effort=0.01).requires_grad_()
    rollout = world.predict({"x": start}, best, noise)
    cost = Reach(goal)(_as_candidates(rollout))
    (gradient,) = torch.autograd.grad(cost.sum(), best)
    assert gradient.abs().max() < 1e-7
    nearby = best.detach() + 0.1 * noise.at("c").normal(*best.shape[1:])
    worse = Reach(goal)(_as_candidates(world.predict({"x": start}, nearby, noise)))
    assert (worse > cost).all()


def _as_candidates(rollout: Rollout) -> Rollout:
    return replace(rollout, latent=rollout.latent[:, None], actions=rollout.actions[:, None], final=None)


def test_objective_rows() -> None:
    goal = torch.arange(8.0).view(2, 4)
    assert torch.equal(Reach().at({"goal/state": goal}).select(torch.tensor([1])).goal, goal[[1]])


def test_inputs_follow_the_specification() -> None:
    obs = {"pixels": (3, 8, 8), "state": (5,)}
    spec = ModelSpec("toy", obs, 2, 3, ActionSpec(2, (-1.0,) * 2, (1.0,) * 2), (4,))
    drawn = random_obs(spec, Noise.of(0, 3), time=2)
    assert drawn["pixels"].shape == (3, 2, 3, 8, 8)
    assert drawn["pixels"].dtype == torch.uint8
    assert drawn["pixels"].max() > 200
    assert drawn["state"].shape == (3, 2, 5)
    assert random_obs(spec, Noise.of(0, 3))["state"].shape == (3, 5)
    assert random_actions(spec, Noise.of(0, 3), 4).shape == (3, 4, 6)
    discrete = replace(spec, action=ActionSpec(1, choices=5), frame_skip=1)
    chosen = random_actions(discrete, Noise.of(0, 3), 50)
    assert chosen.dtype == torch.int64
    assert set(chosen.unique().tolist()) == set(range(5))
