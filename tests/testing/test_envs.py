"""`check_env` accepts a good vector environment and finds each kind of broken one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from worldplan.testing import check_env

Array = np.ndarray[Any, Any]


class Points(VectorEnv[Any, Any, Any]):
    """Points that move by their actions; success within 0.05 of the goal; frames show the position."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, num_envs: int = 3) -> None:
        self.num_envs = num_envs
        box = spaces.Box
        known: dict[str, spaces.Space[Any]] = {
            "state": box(-np.inf, np.inf, (2,), np.float32),
            "goal/state": box(-np.inf, np.inf, (2,), np.float32),
            "pixels": box(0, 255, (4, 4, 3), np.uint8),
        }
        self.single_observation_space = spaces.Dict(known)
        self.single_action_space = box(-1, 1, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        options = options or {}
        assert isinstance(seed, list)
        drawn = np.stack([np.random.default_rng(s).uniform(-1, 1, (2, 2)) for s in seed])
        self.state = self.pick(options, "state", drawn[:, 0])
        self.goal = self.pick(options, "goal", drawn[:, 1])
        self.done = np.zeros(self.num_envs, bool)
        return self.observe(), {}

    def pick(self, options: Mapping[str, Any], key: str, drawn: Array) -> Array:
        value = options.get(key)
        return np.array(drawn if value is None else value, np.float64)

    def observe(self) -> dict[str, Array]:
        level = np.clip(128 + 60 * self.state[:, :1], 0, 255).astype(np.uint8)
        return {
            "state": self.state.astype(np.float32),
            "goal/state": self.goal.astype(np.float32),
            "pixels": np.broadcast_to(level[:, :, None, None], (self.num_envs, 4, 4, 3)).copy(),
        }

    def move(self, actions: Array) -> None:
        self.state = np.where(self.done[:, None], self.state, self.state + 0.1 * np.clip(actions, -1, 1))

    def step(self, actions: Array) -> tuple[Any, ...]:
        was_done = self.done.copy()
        self.move(actions)
        success = np.linalg.norm(self.state - self.goal, axis=1) < 0.05
        self.done = self.done | success
        reward = np.where(was_done, 0.0, success.astype(np.float64))
        return (
            self.observe(),
            reward,
            self.done.copy(),
            np.zeros(self.num_envs, bool),
            {"success": self.done.copy()},
        )

    def step_chunk(self, actions: Array, keep: int | None = None) -> tuple[Any, ...]:
        answers = [self.step(actions[:, index]) for index in range(keep or actions.shape[1])]
        obs = {key: np.stack([answer[0][key] for answer in answers], 1) for key in answers[0][0]}
        facts = [np.stack([answer[place] for answer in answers], 1) for place in (1, 2, 3)]
        return obs, *facts, {"success": np.stack([answer[4]["success"] for answer in answers], 1)}


ALL = ("interface", "reset", "step", "copies", "seeds", "chunks", "states", "ends")


def test_a_good_environment_passes() -> None:
    assert check_env(Points()) == ALL


def test_what_cannot_be_exercised_is_not_claimed() -> None:
    class Blind(Points):
        """Shows frames only."""

        def __init__(self) -> None:
            super().__init__()
            self.single_observation_space = spaces.Dict({"pixels": self.single_observation_space["pixels"]})

        def observe(self) -> dict[str, Array]:
            return {"pixels": super().observe()["pixels"]}

    assert check_env(Blind()) == ALL[:-2]


def test_discrete_actions() -> None:
    class Discrete(Points):
        """Moves up or down."""

        def __init__(self) -> None:
            super().__init__()
            self.single_action_space = spaces.Discrete(2, start=1)

        def move(self, actions: Array) -> None:
            assert actions.shape == (3,)
            assert set(np.unique(actions)) <= {1, 2}
            super().move(np.asarray(actions * 2.0 - 3.0)[:, None] * 0.1)

    assert "chunks" in check_env(Discrete())


class Resets(Points):
    """Resets finished rows by itself, as Gymnasium does by default."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}


class NoChunks(Points):
    """Takes no chunks."""

    step_chunk = property()  # type: ignore[assignment]


class MissingKey(Points):
    """Leaves a key out."""

    def observe(self) -> dict[str, Array]:
        return {key: value for key, value in super().observe().items() if key != "pixels"}


class Wide(Points):
    """Gives float64 where float32 is declared."""

    def observe(self) -> dict[str, Array]:
        return {**super().observe(), "state": self.state.copy()}


class ChannelsFirst(Points):
    """Gives frames with channels first."""

    def observe(self) -> dict[str, Array]:
        obs = super().observe()
        return {**obs, "pixels": np.moveaxis(obs["pixels"], -1, 1)}


class Silent(Points):
    """Declares no success."""

    def step(self, actions: Array) -> tuple[Any, ...]:
        return *super().step(actions)[:4], {}


class IntegerFlags(Points):
    """Gives flags as integers."""

    def step(self, actions: Array) -> tuple[Any, ...]:
        obs, reward, terminated, truncated, info = super().step(actions)
        return obs, reward, terminated.astype(np.int64), truncated, info


class FourTuple(Points):
    """Answers as old Gym did."""

    def step(self, actions: Array) -> tuple[Any, ...]:
        obs, reward, terminated, _, info = super().step(actions)
        return obs, reward, terminated, info


class ReusesBuffers(Points):
    """Writes every observation into the same arrays."""

    def observe(self) -> dict[str, Array]:
        obs = super().observe()
        self.buffers = getattr(self, "buffers", obs)
        for key, value in obs.items():
            self.buffers[key][...] = value
        return self.buffers


class WritesActions(Points):
    """Clips in place."""

    def step(self, actions: Array) -> tuple[Any, ...]:
        actions *= 0.5
        return super().step(actions)


class Unseeded(Points):
    """Draws without the seed."""

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, ...]:
        self.count = getattr(self, "count", 0) + 1
        return super().reset(seed=[s + self.count for s in seed], options=options)


class OneSeed(Points):
    """Seeds rows by their place."""

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, ...]:
        return super().reset(seed=[seed[0] + row for row in range(self.num_envs)], options=options)


class LongChunks(Points):
    """Runs a chunk to its end whatever it is told to keep."""

    def step_chunk(self, actions: Array, keep: int | None = None) -> tuple[Any, ...]:
        answer = super().step_chunk(actions)
        obs, reward, terminated, truncated, info = answer
        cut = slice(-(keep or 0), None)
        obs = {key: value[:, cut] for key, value in obs.items()}
        return (
            obs,
            reward[:, cut],
            terminated[:, cut],
            truncated[:, cut],
            {"success": info["success"][:, cut]},
        )


class TimeFirst(Points):
    """Puts time on axis 0."""

    def step_chunk(self, actions: Array, keep: int | None = None) -> tuple[Any, ...]:
        obs, *rest = super().step_chunk(actions, keep)
        return {key: np.swapaxes(value, 0, 1) for key, value in obs.items()}, *rest


class IgnoresState(Points):
    """Cannot be put anywhere."""

    def pick(self, options: Mapping[str, Any], key: str, drawn: Array) -> Array:
        return drawn if key == "state" else super().pick(options, key, drawn)


class IgnoresGoal(Points):
    """Keeps its own goal."""

    def pick(self, options: Mapping[str, Any], key: str, drawn: Array) -> Array:
        return drawn if key == "goal" else super().pick(options, key, drawn)


class Thaws(Points):
    """Moves rows that have ended."""

    def move(self, actions: Array) -> None:
        self.state = self.state + 0.1 * np.clip(actions, -1, 1)


class PaysTwice(Points):
    """Rewards rows that have ended."""

    def step(self, actions: Array) -> tuple[Any, ...]:
        obs, _, terminated, truncated, info = super().step(actions)
        return obs, terminated.astype(np.float64), terminated, truncated, info


class Forgets(Points):
    """Tells only once that a row has ended."""

    def step(self, actions: Array) -> tuple[Any, ...]:
        was_done = self.done.copy()
        obs, reward, terminated, truncated, info = super().step(actions)
        return obs, reward, terminated & ~was_done, truncated, info


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Resets, "never resets itself"),
        (NoChunks, "takes chunks"),
        (MissingKey, "keys of the space"),
        (Wide, "dtype of observation 'state'"),
        (ChannelsFirst, "shape of observation 'pixels'"),
        (Silent, "success is declared"),
        (IntegerFlags, "dtype of terminated"),
        (FourTuple, "Gymnasium's five"),
        (ReusesBuffers, "does not change once it was given"),
        (WritesActions, "leaves the actions alone"),
        (Unseeded, "same seeds and actions"),
        (OneSeed, "its own seed and actions"),
        (LongChunks, r"step_chunk\(actions, keep=1\)"),
        (TimeFirst, "shape of observation"),
        (IgnoresState, r'obs\["state"\]'),
        (IgnoresGoal, r'obs\["goal/state"\]'),
        (Thaws, "is frozen"),
        (PaysTwice, "is frozen"),
        (Forgets, "is frozen"),
    ],
)
def test_broken_environments_are_found(kind: type[Points], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_env(kind())


def test_one_row_is_not_enough() -> None:
    with pytest.raises(AssertionError, match="rows to compare"):
        check_env(Points(1))
