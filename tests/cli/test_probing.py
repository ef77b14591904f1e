from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from worldplan.cli.probing import Probe
from worldplan.data import native
from worldplan.envs.registry import task
from worldplan.types import Episode

TWOROOM = task("tworoom")


class Eye(torch.nn.Module):
    """Reads the position off the colour of the first pixel, bent as it is told."""

    def __init__(self, bend):
        super().__init__()
        self.bend = bend

    def embed(self, obs):
        return self.bend(obs["pixels"][:, :2, 0, 0].double())


def _episode(number: int, length: int) -> Episode:
    draws = np.random.default_rng(number)
    steps = draws.integers(-9, 10, (length, 2))
    states = (steps.cumsum(0) + draws.integers(60, 190, 2)).clip(0, 255)
    pixels = np.zeros((length, 8, 8, 3), np.uint8)
    pixels[..., :2] = states[:, None, None]
    return Episode(
        {"pixels": pixels, "state": states.astype(np.float32)},
        np.zeros((length - 1, 2), np.float32),
        np.zeros(length - 1, np.float32),
        False,
        True,
        {"source": "real"},
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> native.Dataset:
    path: Path = tmp_path_factory.mktemp("probing") / "walks.h5"
    return native.write(str(path), [_episode(number, 60) for number in range(12)])


def test_latents_that_are_the_state_keep_its_order(dataset):
    found = Probe(dataset, [0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11], TWOROOM)(Eye(lambda z: 3 * z))
    assert found["order"] == pytest.approx(1)
    assert found["r2/agent_x"] == pytest.approx(1, abs=1e-3)


def test_folded_latents_can_be_read_and_still_lose_the_order(dataset):
    # the position is there, for the probe, beside a fast wave that decides what is near
    folded = Eye(lambda z: torch.cat((z / 100, 20 * torch.sin(z * 2.5)), 1))
    found = Probe(dataset, range(8), [8, 9, 10, 11], TWOROOM)(folded)
    assert found["r2/agent_x"] > 0.99
    assert found["order"] < 0.5


def test_episodes_too_short_for_a_goal_leave_the_order_open(dataset, tmp_path):
    short = native.write(str(tmp_path / "short.h5"), [_episode(number, 20) for number in range(12)])
    assert Probe(short, range(8), [8, 9, 10, 11], TWOROOM)(Eye(lambda z: z))["order"] is None
