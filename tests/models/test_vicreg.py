"""VICReg's terms against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from worldplan.models.vicreg import VICReg
from worldplan.seeding import Noise

NOISE = Noise.of(0, 12)


def test_it_is_the_mean_over_time_of_its_two_terms() -> None:
    latents = 0.6 * NOISE.normal(3, 5) + 2
    mask = torch.ones(12, 3, dtype=torch.bool)
    mask[4:, 2], mask[1:, 1] = False, False  # the second time step has a single row and is left out
    expected = []
    for time in (0, 2):
        rows = latents[mask[:, time], time].numpy()
        covariance = np.cov(rows.T)
        hinge = np.maximum(0, 1 - np.sqrt(np.diag(covariance) + 1e-4)).mean()
        outside = covariance - np.diag(np.diag(covariance))
        expected.append(hinge + 0.3 * (outside**2).sum() / 5)
    found = VICReg(covariance_weight=0.3)(latents, NOISE, mask)
    assert found.item() == pytest.approx(np.mean(expected), rel=1e-4)


def test_collapse_costs_and_its_gradient_is_finite() -> None:
    same = torch.zeros(12, 2, 4, requires_grad=True)
    value = VICReg()(same, NOISE)
    assert value.item() == pytest.approx(0.99)
    value.backward()
    assert same.grad is not None and bool(same.grad.isfinite().all())
    assert VICReg()(3 * Noise.of(0, 500).normal(1, 2), NOISE).item() < 0.05
