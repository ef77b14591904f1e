import numpy as np
import pytest
import torch

from worldplan.envs import tworoom
from worldplan.envs.pusht import PushT
from worldplan.envs.reacher import Reacher
from worldplan.policies.pusht_scripted import PushTScripted
from worldplan.policies.reacher_scripted import ReacherScripted
from worldplan.policies.tworoom_scripted import TwoRoomScripted
from worldplan.seeding import Noise
from worldplan.testing.policies import check_policy


def places(count, seed=0):
    points = np.random.default_rng(seed).uniform(tworoom.LOW, tworoom.HIGH, (3 * count, 2))
    return points[tworoom.is_free(points)][:count]


def walk(policy, states, steps, goals=None):
    """States ``[B, steps + 1, 2]`` of Two-Room under a policy."""
    carry, noise, path = policy.initial(len(states)), Noise.of(0, len(states)), [states]
    for step in range(steps):
        obs = {"state": torch.from_numpy(path[-1]).float()}
        if goals is not None:
            obs["goal/state"] = torch.from_numpy(goals).float()
        actions, carry = policy.act(obs, carry, noise.at("policy", step))
        assert actions.shape == (len(states), 1, 2) and (actions.abs() <= 1).all()
        path.append(tworoom.move(path[-1], actions[:, 0].numpy()))
    return np.stack(path, 1)


def test_navigator_visits_both_rooms_and_all_heights():
    path = walk(TwoRoomScripted(), places(40), 100)
    rooms = path[..., 0] < tworoom.WALL_X
    assert ((rooms[:, 1:] != rooms[:, :-1]).sum(1) > 0).mean() > 0.5
    counts = np.histogram2d(*path.reshape(-1, 2).T, bins=[[21, 100, 124, 203], 4])[0]
    assert (counts > 30)[[0, 2]].all()
    travelled = np.linalg.norm(path[:, 25:] - path[:, :-25], axis=-1)
    assert 40 < np.median(travelled) < 100


def test_navigator_reaches_goals_and_noise_grades_it():
    start, goals = places(100, 1), places(100, 2)
    rates = []
    for noise in (0.0, 2.0, 5.0):
        path = walk(TwoRoomScripted(goal=True, action_noise=noise), start, 80, goals)
        rates.append(tworoom.success(path, goals[:, None]).any(1).mean())
    assert rates[0] == 1 and rates[0] > rates[1] + 0.05 > rates[2] + 0.1


def test_reacher_play_moves_smoothly_within_the_limits():
    policy, noise = ReacherScripted(), Noise.of(0, 64)
    carry, state, chosen = policy.initial(64), torch.zeros(64, 4), []
    for step in range(100):
        actions, carry = policy.act({"state": state}, carry, noise.at("policy", step))
        chosen.append(actions[:, 0])
    torques = torch.stack(chosen, 1)
    assert (torques.abs() <= 1).all()
    assert torques[:, 50:].std() == pytest.approx(policy.scale, rel=0.15)
    ahead = (torques[:, 51:] * torques[:, 50:-1]).mean() / torques[:, 50:].square().mean()
    assert ahead == pytest.approx(policy.persistence, abs=0.05)


def test_push_t_play_moves_and_turns_the_block():
    policy, envs, noise = PushTScripted(), [PushT(pixels=False) for _ in range(6)], Noise.of(0, 6)
    carry, states = policy.initial(6), [np.stack([e.reset(seed=s)[0]["state"] for s, e in enumerate(envs)])]
    for step in range(100):
        actions, carry = policy.act({"state": torch.from_numpy(states[-1])}, carry, noise.at("policy", step))
        for env, action in zip(envs, actions[:, 0].numpy(), strict=True):
            env.advance(action)
        states.append(np.stack([env.state() for env in envs]).astype(np.float32))
    path = np.stack(states, 1)
    moved = np.linalg.norm(path[:, 25:, 2:4] - path[:, :-25, 2:4], axis=-1)
    assert np.median(moved) > 20
    assert (np.abs(path[..., 2:4] - 256) < 256).all()


@pytest.mark.parametrize(
    ("policy", "size"),
    [
        (PushTScripted(), 7),
        (TwoRoomScripted(), 2),
        (TwoRoomScripted(goal=True), 2),
        (ReacherScripted(), 4),
    ],
)
def test_they_keep_the_contract_of_policies(policy, size):
    state = 50 + 100 * torch.rand(4, size, generator=torch.Generator().manual_seed(0))
    check_policy(policy, {"state": state, "goal/state": state.flip(0)})


@pytest.mark.sims
def test_reacher_play_in_the_simulator():
    policy, env, noise = ReacherScripted(), Reacher(pixels=False), Noise.of(0, 1)
    carry, states = policy.initial(1), [env.reset(seed=0)[0]["state"]]
    for step in range(200):
        actions, carry = policy.act({"state": torch.from_numpy(states[-1])[None]}, carry, noise.at(step))
        env.advance(actions[0, 0].numpy())
        states.append(env.state().astype(np.float32))
    path = np.stack(states)
    assert np.abs(path[:, 2:]).max() < 15 and np.median(np.abs(np.diff(path[:, 1]))) > 1e-3
