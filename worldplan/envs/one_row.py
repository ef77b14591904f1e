"""A vector environment of one row behind the interface of a single environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from worldplan.types import Array

Observation = dict[str, Array]


class OneRowEnv(gymnasium.Env[Observation, Array]):
    """One row as a `gymnasium.Env`, for wrappers and libraries that know no vectors.

    Args:
        vector: an environment of one row, which this owns.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"

    def __init__(self, vector: VectorEnv[Observation, Array, Array]) -> None:
        assert vector.num_envs == 1, vector.num_envs
        self._vector = vector
        self.name = getattr(vector, "name", type(vector).__name__)
        self.source = getattr(vector, "source", "real")
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; options hold ``state [s]`` and ``goal [s]``, or ``obs``, without rows."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        rows = {key: _with_row(value) for key, value in (options or {}).items()}
        obs, info = self._vector.reset(seed=[drawn], options=rows)  # type: ignore[arg-type]
        return _row(obs), self._facts(info)

    def step(self, action: Array) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One environment step with an action ``[a]``."""
        obs, reward, terminated, truncated, info = self._vector.step(np.asarray(action)[None])
        facts = self._facts(info)
        return _row(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), facts

    def render(self) -> Array:
        """The frame the policy sees, ``uint8 [h, w, 3]``."""
        frames = self._vector.render()
        assert frames is not None
        return np.asarray(frames[0])

    def close(self) -> None:
        """Closes the row."""
        self._vector.close()

    @staticmethod
    def _facts(info: Mapping[str, Array]) -> dict[str, Any]:
        return {key: value[0].item() for key, value in info.items()}


def _row(obs: Observation) -> Observation:
    return {key: value[0].copy() for key, value in obs.items()}


def _with_row(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_row(entry) for key, entry in value.items()}
    return None if value is None else np.asarray(value)[None]
