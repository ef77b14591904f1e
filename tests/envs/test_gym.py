import pickle

import gymnasium
import numpy as np
import pytest

from worldplan.envs.gym import GymEnv
from worldplan.envs.registry import task
from worldplan.envs.vector import SimVectorEnv
from worldplan.errors import ConfigError, UsageError


class Declares(gymnasium.Env):
    """Succeeds at the third step, under a key of its choice."""

    def __init__(self, key, observation):
        self.key, self.count, self.observation_space = key, 0, observation
        self.action_space = gymnasium.spaces.Discrete(3, start=5)
        self.seen = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.seen.append(action)
        self.count += 1
        return self.observation_space.sample(), 1.0, False, False, {self.key: self.count >= 3}


VECTOR = gymnasium.spaces.Box(-1, 1, (3,), np.float64)
IMAGE = gymnasium.spaces.Box(0, 255, (8, 9, 3), np.uint8)


@pytest.mark.parametrize(
    ("key", "declared", "expected"),
    [
        ("success", None, [False, False, True]),
        ("is_success", None, [False, False, True]),
        ("won", None, [None, None, None]),
        ("won", "won", [False, False, True]),
        ("other", "won", [False, False, False]),
    ],
)
def test_success_is_declared_never_guessed(key, declared, expected):
    env = GymEnv(Declares(key, VECTOR), success_key=declared)
    env.reset(seed=0)
    assert [env.step(0)[4]["success"] for _ in range(3)] == expected


def test_names_of_observations():
    spaces = gymnasium.spaces.Dict(
        {"observation": VECTOR, "camera": IMAGE, "speed": gymnasium.spaces.Box(0, 1)}
    )
    env = GymEnv(Declares("success", spaces))
    obs, _ = env.reset(seed=0)
    assert {key: (value.shape, value.dtype) for key, value in obs.items()} == {
        "state": ((3,), np.dtype("float32")),
        "camera": ((8, 9, 3), np.dtype("uint8")),
        "speed": ((1,), np.dtype("float32")),
    }
    assert obs in env.observation_space
    assert set(GymEnv(Declares("success", IMAGE)).reset(seed=0)[0]) == {"pixels"}


def test_discrete_actions_count_from_zero():
    inner = Declares("success", VECTOR)
    env = SimVectorEnv(lambda: GymEnv(inner), 1)
    env.reset(seed=0)
    env.step(np.array([0]))
    env.step_chunk(np.array([[[1], [2]]]))
    assert inner.seen == [5, 6, 7]


def test_unknown_success_is_left_out():
    env = SimVectorEnv("gym:CartPole-v1", 2, pixels=False)
    obs, info = env.reset(seed=[3, 4])
    assert "success" not in info and env.name == "gym:CartPole-v1"
    alone = gymnasium.make("CartPole-v1")
    np.testing.assert_array_equal(obs["state"][1], alone.reset(seed=4)[0])
    # always to the right the pole falls: the row ends, stays, and never counts as a success
    obs, reward, terminated, _, info = env.step_chunk(np.ones((2, 40, 1), np.int64))
    assert terminated[:, -1].all() and "success" not in info
    assert (reward.sum(1) < 15).all() and (obs["state"][:, -1] == obs["state"][:, -2]).all()


def test_a_gym_task():
    known = task("gym:CartPole-v1")
    assert known.action.choices == 2 and known.budget == 500 and known.state_names == ()
    assert pickle.loads(pickle.dumps(known)).name == known.name
    with pytest.raises(UsageError, match="no goal states"):
        known.success(np.zeros(4), np.zeros(4))
    pendulum = task("gym:Pendulum-v1").action
    assert (pendulum.dim, pendulum.low, pendulum.high) == (1, (-2.0,), (2.0,))


def test_workers_run_it_too():
    env = SimVectorEnv("gym:Pendulum-v1", 2, workers=1, pixels=False)
    try:
        obs, _ = env.reset(seed=0)
        assert obs["state"].shape == (2, 3)
        assert env.step(np.full((2, 1), 9.0))[0]["state"].shape == (2, 3)
    finally:
        env.close()


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="Nowhere"):
        task("gym:Nowhere-v0")
    with pytest.raises(ConfigError, match="nomodule"):
        task("gym:nomodule:Thing-v0")
    with pytest.raises(UsageError, match="Box, or a Dict of Boxes"):
        GymEnv(Declares("success", gymnasium.spaces.Text(3)))
    env = GymEnv(Declares("success", VECTOR))
    with pytest.raises(UsageError, match="cannot be set to a state"):
        env.reset(options={"state": [0, 0, 0]})
