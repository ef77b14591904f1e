import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import worldplan.envs  # noqa: F401  registers the ids
from worldplan.envs import pusht
from worldplan.envs.pusht import PushT
from worldplan.errors import UsageError
from worldplan.policies.pusht_scripted import PushTScripted
from worldplan.seeding import Noise

MIDDLE = np.array([200, 300, 256, 256, 1.0, 0, 0])


@pytest.fixture(scope="module")
def recorded():
    """States [8, 61, 7] and actions [8, 60, 2] of contact-seeking play, one simulator per episode."""
    envs, policy = [PushT(pixels=False) for _ in range(8)], PushTScripted()
    states = [np.stack([env.reset(seed=seed)[0]["state"] for seed, env in enumerate(envs)])]
    noise, carry, actions = Noise.of(0, 8), policy.initial(8), []
    for step in range(60):
        chosen, carry = policy.act({"state": torch.from_numpy(states[-1])}, carry, noise.at("policy", step))
        actions.append(chosen[:, 0].numpy())
        for env, action in zip(envs, actions[-1], strict=True):
            env.advance(np.clip(action, -1, 1))
        states.append(np.stack([env.state().astype(np.float32) for env in envs]))
    return np.stack(states, 1), np.stack(actions, 1)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ((19.9, 0, 0, 0, 0, 0, 0), True),
        ((20.1, 0, 0, 0, 0, 0, 0), False),
        ((0, 12, 0, 12, 0, 0, 0), True),
        ((0, 15, 0, 15, 0, 0, 0), False),  # the norm is of both positions together
        ((0, 0, 0, 0, math.pi / 9 - 0.01, 0, 0), True),
        ((0, 0, 0, 0, math.pi / 9 + 0.01, 0, 0), False),
        ((0, 0, 0, 0, 2 * math.pi - 0.1, 500, 500), True),  # wrapped; velocities do not count
    ],
)
def test_success_is_the_joint_distance_and_the_angle(change, expected):
    assert bool(pusht.success(MIDDLE, MIDDLE + np.array(change))) is expected


def test_demanding_is_about_the_block():
    goals = np.stack([MIDDLE] * 4)
    goals[1, 0] += 100  # the agent only
    goals[2, 2] += 21
    goals[3, 4] += 0.36
    np.testing.assert_array_equal(pusht.demanding(MIDDLE, goals), [False, False, True, True])
    assert pusht.progress(MIDDLE, goals)[0] == 1


def test_any_recorded_state_is_set_exactly(recorded):
    env, (states, _) = PushT(pixels=False), recorded
    for state in states[:, ::7].reshape(-1, 7):
        obs, _ = env.reset(options={"state": state, "goal": MIDDLE})
        np.testing.assert_array_equal(obs["state"], state)
        np.testing.assert_array_equal(env.state().astype(np.float32), state)


def test_a_set_state_forgets_what_went_before(recorded):
    states, actions = recorded
    ends = []
    for disturbance in (0, 5):
        env = PushT(pixels=False)
        env.reset(seed=0)
        for action in actions[1, :disturbance]:
            env.advance(action)
        env.set_state(states[0, 20])
        for action in actions[0, 20:40]:
            env.advance(action)
        ends.append(env.state())
    np.testing.assert_array_equal(*ends)


def test_replayed_actions_lead_to_the_recorded_goal(recorded):
    # Contacts that the physics engine keeps from step to step are no part of the state, so a replay
    # from the middle of a push may part from the recording: measured, 95.6 % of 297 segments arrive
    # (95.0 % of the 258 in which the block must move), while one from the reset is exact.
    states, actions = recorded
    env, arrived = PushT(pixels=False), []
    for episode in range(8):
        for begin in range(0, 36, 5):
            env.set_state(states[episode, begin])
            for action in np.clip(actions[episode, begin : begin + 25], -1, 1):
                env.advance(action)
            arrived.append(pusht.success(env.state(), states[episode, begin + 25]))
    assert np.mean(arrived) >= 0.85, np.mean(arrived)


def test_a_replay_from_the_reset_is_exact(recorded):
    states, actions = recorded
    env = PushT(pixels=False)
    env.reset(seed=3)
    for action, state in zip(actions[3], states[3, 1:], strict=True):
        env.advance(np.clip(action, -1, 1))
        np.testing.assert_array_equal(env.state().astype(np.float32), state)


def test_the_agent_follows_the_pd_law():
    # p'' = 100 (target - p) - 20 p', critically damped, in ten steps of 0.01 s that update the velocity
    # first; nobody is in the way
    env = PushT(pixels=False)
    env.set_state(np.array([100, 100, 350, 350, 0, 30, 0]))
    env.advance(np.array([0.5, -0.2]))
    position, velocity, target = np.array([100.0, 100.0]), np.array([30.0, 0.0]), np.array([150.0, 80.0])
    for _ in range(10):
        velocity = velocity + (100 * (target - position) - 20 * velocity) * 0.01
        position = position + velocity * 0.01
    np.testing.assert_allclose(env.state()[[0, 1, 5, 6]], [*position, *velocity], rtol=1e-12)
    np.testing.assert_array_equal(env.state()[2:5], [350, 350, 0])


def test_drawing_leaves_the_simulation_alone(recorded):
    states, actions = recorded
    ends = []
    for draws in (False, True):
        env = PushT(image_size=16, pixels=False)
        env.reset(seed=3)
        for action in actions[3, :40]:
            env.advance(action)
            if draws:
                env.render_states(states[0, :1], 16)
        ends.append(env.state())
    np.testing.assert_array_equal(*ends)


def test_a_drawn_state_looks_as_the_simulation_does(recorded):
    states, actions = recorded
    env = PushT(image_size=32)
    obs, _ = env.reset(seed=3)
    np.testing.assert_array_equal(obs["pixels"], env.render_state(env.state()))
    np.testing.assert_array_equal(obs["goal/pixels"], env.render_state(obs["goal/state"]))
    for action in actions[3, :30]:
        obs = env.step(action)[0]
        difference = np.abs(obs["pixels"].astype(int) - env.render_state(env.state()))
        # the package dots the points of contact, which a state does not hold
        assert (difference > 0).any(-1).sum() <= 12 and difference.max() <= 40


def test_states_and_actions_that_cannot_be_are_refused():
    env = PushT(image_size=16)
    for state in ([1, 2, 3], np.full(7, np.nan)):
        with pytest.raises(UsageError, match="7 finite numbers: agent_x"):
            env.reset(options={"goal": state})
    with pytest.raises(UsageError, match="before its first reset"):
        env.step(np.zeros(2))
    env.reset(seed=0)
    with pytest.raises(UsageError, match="2 finite numbers"):
        env.step(np.array([np.nan, 0]))
    with pytest.raises(UsageError, match="human"):
        PushT(render_mode="human")


def test_success_ends_the_episode():
    env = PushT(image_size=16, render_mode="rgb_array")
    obs, info = env.reset(options={"state": MIDDLE, "goal": MIDDLE + [10, 0, 0, 0, 0, 0, 0]})
    assert info == {"success": True}
    _, reward, terminated, truncated, info = env.step(np.zeros(2))
    assert (reward, terminated, truncated, info["success"]) == (1, True, False, True)
    assert env.render().shape == (256, 256, 3)


@pytest.mark.filterwarnings("ignore:.*Box observation space")
def test_gymnasium_checks_it():
    env = gymnasium.make("worldplan.envs:worldplan/PushT-v0", image_size=16, render_mode="rgb_array")
    check_env(env.unwrapped)


def test_states_alone_draw_nothing(monkeypatch):
    env = PushT(pixels=False)
    monkeypatch.setattr(env, "_frame", lambda *_: pytest.fail("a frame was drawn"))
    env.reset(seed=0)
    assert set(env.step(np.zeros(2))[0]) == {"state", "goal/state"}
