"""The probe on latents whose content is known."""

from __future__ import annotations

import math

import pytest
import torch

from worldplan.errors import DataError
from worldplan.training.probe import probe

NAMES = ("x", "angle", "constant", "unseen")


def world(count: int = 400) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Latents that hold x and the angle's direction, rotated into 6 dimensions, and rows per side."""
    generator = torch.Generator().manual_seed(0)
    x, angle, unseen = torch.rand(3, count, generator=generator)
    angle = angle * 2 * math.pi
    states = torch.stack((x * 512, angle, torch.full((count,), 3.0), unseen), 1)
    content = torch.stack((x, angle.cos(), angle.sin()), 1)
    latents = content @ torch.randn(3, 6, generator=generator) + 5
    rows = torch.arange(count)
    return latents, states, rows[: count // 2], rows[count // 2 :]


def test_what_is_there_is_read_and_what_is_not_is_not() -> None:
    latents, states, train, test = world()
    scores = probe(latents, states, NAMES, ("angle",), train=train, test=test)
    assert scores["x"] > 0.999 and scores["angle"] > 0.999
    assert scores["unseen"] < 0.1 and scores["constant"] is None
    # as a plain number, the angle jumps at a full turn and cannot be read linearly
    assert probe(latents, states, NAMES, train=train, test=test)["angle"] < 0.8


def test_it_is_ridge_regression() -> None:
    latents, states, train, test = world(60)
    latents = latents + torch.randn(latents.shape, generator=torch.Generator().manual_seed(1))
    scores = probe(latents[:, :2], states[:, :1], ("x",), train=train, test=test, strength=0.3)
    known, new = latents[train, :2].double(), latents[test, :2].double()
    mean, std = known.mean(0), known.std(0)
    offset = states[train, :1].double().mean(0)
    # the same penalised least squares, as an ordinary one with extra rows
    rows = torch.cat(((known - mean) / std, torch.eye(2, dtype=torch.float64) * (0.3 * len(train)) ** 0.5))
    targets = torch.cat((states[train, :1].double() - offset, torch.zeros(2, 1, dtype=torch.float64)))
    weights = torch.linalg.lstsq(rows, targets).solution
    actual = states[test, :1].double()
    error = actual - ((new - mean) / std @ weights + offset)
    expected = 1 - error.square().sum() / (actual - actual.mean()).square().sum()
    assert scores["x"] == pytest.approx(float(expected))


def test_spatial_latents_and_more_dimensions_than_rows() -> None:
    latents, states, train, test = world(40)
    wide = latents[:, :, None, None].expand(-1, -1, 5, 5)
    mask = torch.zeros(40, dtype=torch.bool)
    mask[train] = True
    scores = probe(wide, states, NAMES, ("angle",), train=mask, test=~mask)
    assert scores["x"] > 0.98


def test_what_cannot_be_probed_is_said() -> None:
    latents, states, train, test = world(20)
    with pytest.raises(DataError, match="too few"):
        probe(latents, states, NAMES, train=train[:1], test=test)
    with pytest.raises(DataError, match="not finite"):
        probe(latents * math.nan, states, NAMES, train=train, test=test)
