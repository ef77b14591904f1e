"""Tiny models and batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from worldplan.models.lewm import LeWM, LeWMConfig
from worldplan.seeding import Noise
from worldplan.types import ActionSpec, Batch

ACTION = ActionSpec(2, (-1.0, -1.0), (1.0, 1.0))
SMALL = LeWMConfig(
    image_size=16,
    latent_dim=8,
    frame_skip=2,
    conv_widths=(8, 8),
    conv_narrow=4,
    conv_features=16,
    projector_hidden=16,
    predictor_width=16,
    predictor_depth=2,
    predictor_heads=2,
    predictor_head_dim=4,
    predictor_hidden=16,
    rollout_steps=1,
    sigreg_directions=16,
    decoder_size=16,
    decoder_widths=(8, 8),
    state_dim=3,
    state_angles=(2,),
    head_hidden=16,
)
VIT = {"encoder": "vit", "image_size": 28, "vit_patch": 14, "vit_width": 12, "vit_depth": 2, "vit_heads": 3}


@pytest.fixture(autouse=True)
def _weights() -> Iterator[None]:
    """Initial weights come from PyTorch's generator; every test begins with the same ones."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


def make_batch(config: LeWMConfig = SMALL, rows: int = 6, steps: int = 3, seed: int = 0) -> Batch:
    draws = Noise.of(seed, rows)
    size, dim = config.image_size, 2 * config.frame_skip
    frames = draws.at("frames").integers(256, steps + 1, 3, size, size).to(torch.uint8)
    states = draws.at("states").uniform(steps + 1, 3) * torch.tensor([100.0, 10.0, 6.2])
    mask = torch.ones(rows, steps, dtype=torch.bool)
    return Batch({"pixels": frames, "state": states}, draws.at("actions").normal(steps, dim), mask)


def make_columns(config: LeWMConfig = SMALL) -> dict[str, np.ndarray]:
    batch = make_batch(config, rows=20, seed=9)
    frames = batch.obs["pixels"].flatten(0, 1).movedim(1, -1).numpy()
    states = batch.obs["state"].flatten(0, 1).numpy()
    return {"action": batch.actions.reshape(-1, 2).numpy(), "state": states, "pixels": frames}


def make_lewm(**changes: Any) -> LeWM:
    config = replace(SMALL, **changes)
    if config.image_size != 16:
        config = replace(config, pixel_head=False)
    model = LeWM(config, config.spec("toy", ACTION))
    model.fit_statistics(make_columns(config))
    return model


@pytest.fixture
def lewm() -> Any:
    """The function that makes tiny models, with statistics and random weights."""
    return make_lewm


@pytest.fixture
def batch() -> Any:
    """The function that makes batches."""
    return make_batch


@pytest.fixture
def columns() -> Any:
    """The function that makes columns to measure."""
    return make_columns
