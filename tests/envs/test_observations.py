"""Gymnasium's arrays and our tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from worldplan.envs.observations import to_arrays, to_obs
from worldplan.errors import UsageError


@pytest.fixture
def observation() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "pixels": rng.integers(0, 255, (2, 4, 6, 3), np.uint8),
        "state": rng.normal(size=(2, 5)),
        "choice": np.array([1, 2]),
    }


def test_images_change_their_layout_and_come_back(observation: dict[str, np.ndarray]) -> None:
    obs = to_obs(observation)
    assert obs["pixels"].shape == (2, 3, 4, 6) and obs["pixels"].is_contiguous()
    assert obs["pixels"][1, 2, 3, 5] == observation["pixels"][1, 3, 5, 2]
    assert obs["state"].dtype == torch.float32 and obs["choice"].dtype == torch.int64
    back = to_arrays(obs)
    np.testing.assert_array_equal(back["pixels"], observation["pixels"])
    observation["state"][:] = 0
    assert obs["state"].abs().min() > 0, "the tensors are copies"


def test_strange_observations_are_refused(observation: dict[str, np.ndarray]) -> None:
    with pytest.raises(UsageError, match="layout"):
        to_obs({"pixels": np.moveaxis(observation["pixels"], -1, 1)})
    with pytest.raises(UsageError, match="'task' cannot become a tensor"):
        to_obs({"task": np.array(["push", "pull"])})
