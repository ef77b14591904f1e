"""Single environments beside each other in one process: what a worker owns.

Rows that are done are frozen: their observation repeats, their reward is 0, their flags stay. Success
is kept as 1, 0 or -1, the last where the environment has not declared any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from worldplan.errors import UsageError
from worldplan.types import Array

Observation = dict[str, Array]
Factory = Callable[[], gymnasium.Env[Any, Any]]
UNKNOWN = -1


class Rows:
    """A slice of a batch of environments, stepped one after the other.

    Args:
        factory: makes one environment with Dict observations.
        count: M, how many.

    Raises:
        UsageError: the observation is not a Dict of arrays, or the actions are neither Box nor Discrete.
    """

    def __init__(self, factory: Factory, count: int) -> None:
        self._envs = [factory() for _ in range(count)]
        observation, action = self._envs[0].observation_space, self._envs[0].action_space
        if not isinstance(observation, gymnasium.spaces.Dict):
            raise UsageError(
                "the environment's observation has no names",
                expected='a Dict space with entries like "state" or "pixels"',
                found=str(observation),
                fix="gym:Namespace/Name-v0, or wrap it in worldplan.envs.gym.GymEnv",
            )
        if not isinstance(action, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
            raise UsageError(
                "the environment's actions cannot be planned", expected="Box or Discrete", found=str(action)
            )
        self._discrete = isinstance(action, gymnasium.spaces.Discrete)
        self._obs: list[Observation] = [{} for _ in self._envs]
        self._done = np.zeros((count, 2), bool)  # terminated, truncated
        self._success = np.full(count, UNKNOWN, np.int8)

    def spaces(self) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any], dict[str, Any]]:
        """Observation space, action space and metadata of one environment."""
        env = self._envs[0]
        return env.observation_space, env.action_space, dict(env.metadata)

    def reset(
        self, mask: Array, seeds: Sequence[int | None], states: Sequence[Any], goals: Sequence[Any]
    ) -> tuple[Observation, Array]:
        """Resets the rows of ``mask``; all arguments have M entries, None lets the environment choose."""
        for row in np.flatnonzero(mask).tolist():
            given = {"state": states[row], "goal": goals[row]}
            options = {key: value for key, value in given.items() if value is not None}
            self._obs[row], info = self._envs[row].reset(seed=seeds[row], options=options or None)
            self._done[row] = False
            self._success[row] = _declared(info)
        return self._stacked(), self._success.copy()

    def run(self, actions: Array) -> tuple[Observation, Array, Array, Array, Array]:
        """Steps all rows through ``actions [M, K, a]``; returns five arrays ``[M, K, ...]``."""
        rows, steps = actions.shape[:2]
        obs = {key: np.empty((rows, steps, *value.shape), value.dtype) for key, value in self._obs[0].items()}
        reward = np.zeros((rows, steps), np.float32)
        done, success = np.zeros((rows, steps, 2), bool), np.zeros((rows, steps), np.int8)
        for row in range(rows):
            for step in range(steps):
                if not self._done[row].any():
                    reward[row, step] = self._step(row, actions[row, step])
                for key, value in self._obs[row].items():
                    obs[key][row, step] = value
                done[row, step], success[row, step] = self._done[row], self._success[row]
        return obs, reward, done[..., 0], done[..., 1], success

    def render_states(self, states: Array, size: int | None) -> Array:
        """Frames ``uint8 [M, size, size, 3]`` of ``states [M, s]``."""
        return np.asarray(self._settable("render_states").render_states(states, size))

    def simulate(self, states: Array, actions: Array, steps: Array) -> Array:
        """States ``[M, S, s]`` after ``steps [S]`` of ``actions [M, T, a]`` from ``states [M, s]``.

        Actions are clipped to the bounds. From an action or a state on that is not finite, a row is NaN.
        """
        env, space = self._settable("set_state"), self._envs[0].action_space
        assert isinstance(space, gymnasium.spaces.Box), space
        actions = np.clip(actions, space.low, space.high)
        kept = np.full((len(states), len(steps), states.shape[1]), np.nan)
        wanted: dict[int, list[int]] = {}
        for index, step in enumerate(steps):
            wanted.setdefault(int(step), []).append(index)
        for row, state in enumerate(states):
            if not np.isfinite(state).all():
                continue
            kept[row, wanted.get(0, [])] = state
            env.set_state(state)
            for step in range(1, max(wanted, default=0) + 1):
                action = actions[row, step - 1]
                if not np.isfinite(action).all():
                    break
                env.advance(action)
                if step in wanted:
                    kept[row, wanted[step]] = env.state()
        return kept

    def render(self) -> list[Any]:
        """What each environment's `render` returns."""
        return [env.render() for env in self._envs]

    def close(self) -> None:
        """Closes every environment."""
        for env in self._envs:
            env.close()

    def _step(self, row: int, action: Array) -> float:
        chosen: Any = int(action[0]) if self._discrete else action
        self._obs[row], reward, terminated, truncated, info = self._envs[row].step(chosen)
        self._done[row] = terminated, truncated
        self._success[row] = _declared(info)
        return float(reward)

    def _stacked(self) -> Observation:
        return {key: np.stack([obs[key] for obs in self._obs]) for key in self._obs[0]}

    def _settable(self, method: str) -> Any:
        env = self._envs[0].unwrapped
        if not hasattr(env, method):
            raise UsageError(
                f"{type(env).__name__} cannot be set to states or drawn from them",
                expected=f"an environment with {method}()",
                found="one without",
                fix="use pusht, tworoom, reacher, or a subclass of worldplan.envs.goal_env.GoalEnv",
            )
        return env


def _declared(info: dict[str, Any]) -> int:
    value = info.get("success")
    return UNKNOWN if value is None else int(bool(value))
