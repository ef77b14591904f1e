"""What imagination answers: model steps as drawn and judged, and the environment steps they span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from worldplan.envs.observations import to_arrays
from worldplan.types import Array, Obs

Observation = dict[str, Array]


@dataclass(frozen=True)
class Frames:
    """What m model steps of R rows look like, as arrays ``[R, m, ...]``."""

    obs: Observation
    success: Array
    progress: Array
    reward: Array
    ended: Array

    @classmethod
    def of(
        cls,
        decoded: Obs,
        judged: tuple[Tensor, Tensor] | None,
        reward: Tensor | None,
        discount: Tensor | None,
        shape: tuple[int, ...],
    ) -> Frames:
        """Folds ``[R*m, ...]`` back and settles reward and end."""
        obs = {key: value.reshape(*shape, *value.shape[1:]) for key, value in to_arrays(decoded).items()}
        success, progress = np.zeros(shape, bool), np.zeros(shape, np.float32)
        if judged is not None:
            success, progress = (value.cpu().numpy().reshape(shape) for value in judged)
        ended = success.copy()
        if discount is not None:
            ended |= discount.cpu().numpy() < 0.5
        earned = success.astype(np.float64) if reward is None else reward.cpu().numpy().astype(np.float64)
        return cls(obs, success, progress, earned, ended)

    def at(self, index: int, rows: Array) -> Frames:
        """One model step of some rows."""
        return Frames(
            {key: value[rows, index] for key, value in self.obs.items()},
            self.success[rows, index],
            self.progress[rows, index],
            self.reward[rows, index],
            self.ended[rows, index],
        )


@dataclass(frozen=True)
class Chunk:
    """The answers of l environment steps, arrays ``[B, l, ...]`` that are filled in place."""

    obs: Observation
    reward: Array
    terminated: Array
    truncated: Array
    success: Array
    progress: Array

    @classmethod
    def still(
        cls,
        obs: Observation,
        terminated: Array,
        truncated: Array,
        success: Array,
        progress: Array,
        length: int,
    ) -> Chunk:
        """Nothing happens: the present ``[B, ...]`` repeated, without reward."""

        def repeated(value: Array) -> Array:
            return np.repeat(value[:, None], length, 1)

        still = {key: repeated(value) for key, value in obs.items()}
        reward = np.zeros((len(terminated), length))
        flags = repeated(terminated), repeated(truncated), repeated(success)
        return cls(still, reward, *flags, repeated(progress))

    def write(self, rows: Array, at: int, seen: Frames) -> None:
        """Puts a model step's outcome at step `at` and, until the next one, after it."""
        for key, value in seen.obs.items():
            self.obs[key][rows, at:] = value[:, None]
        self.reward[rows, at] = seen.reward
        self.success[rows, at:] |= seen.success[:, None]
        self.progress[rows, at:] = seen.progress[:, None]
        self.terminated[rows, at:] |= seen.ended[:, None]
