from __future__ import annotations

import numpy as np
import pytest
import torch

from worldplan.envs.registry import task
from worldplan.errors import ConfigError
from worldplan.planners.cem import CEM
from worldplan.planners.objectives import StateGoal
from worldplan.policies.segments import PlannedSegments
from worldplan.seeding import Noise
from worldplan.testing.policies import check_policy

TWOROOM = task("tworoom")
GOAL = StateGoal(lambda latent: latent, (1.0, 1.0))
SEARCH = CEM(horizon=3, num_samples=40, num_elites=5, num_iterations=4, init_std=0.5)
OBS = {"state": torch.tensor([[40.0, 60.0], [180.0, 60.0], [40.0, 180.0]])}


def policy(**settings):
    return PlannedSegments(TWOROOM, SEARCH, GOAL, **settings)


def test_keeps_the_contract_of_a_policy():
    check_policy(policy(), OBS, action=TWOROOM.action)


def test_a_goal_stands_for_a_segment_and_belongs_to_its_row():
    made, noise, goals = policy(segment=2), Noise.of(0, [4, 5, 6]), []
    carry = made.initial(3)
    for step in range(4):
        _, carry = made.act(OBS, carry, noise.at("policy", step))
        goals.append(carry["goal"])
    assert torch.equal(goals[0], goals[1]) and torch.equal(goals[2], goals[3])
    assert not torch.equal(goals[1], goals[2])
    assert len({tuple(goal) for goal in goals[0].tolist()}) == 3
    alone = policy(segment=2).act(
        {"state": OBS["state"][1:2]}, made.initial(1), Noise.of(0, [5]).at("policy", 0)
    )
    assert torch.equal(alone[1]["goal"][0], goals[0][1])


def test_it_moves_toward_its_goal():
    made = policy()
    actions, carry = made.act(OBS, made.initial(3), Noise.of(0, [4, 5, 6]).at("policy", 0))
    states = OBS["state"].double().numpy()
    for step in range(actions.shape[1]):
        states = TWOROOM.advance(states, actions[:, step].double().numpy())
    goal = carry["goal"].numpy()
    before = np.linalg.norm(OBS["state"].numpy() - goal, axis=1)
    after = np.linalg.norm(states - goal, axis=1)
    # a wall may be in the way of one of them
    assert (after < before - 5).sum() >= 2


def test_a_segment_has_decisions():
    with pytest.raises(ConfigError, match="1 or more"):
        policy(segment=0)
