"""Resampling by start keeps pairs together and matches a bootstrap written out."""

from __future__ import annotations

import numpy as np
import pytest

from worldplan.evaluation.resampling import Outcomes, agree


def test_resampling_is_paired_over_policies_and_sides() -> None:
    """If imagination repeats reality episode for episode, no choice of starts makes them disagree."""
    outcomes = np.random.default_rng(0).integers(0, 2, (4, 30)).astype(float)
    ones = np.ones_like(outcomes)
    found = agree(Outcomes(outcomes, ones, outcomes, ones), resamples=100)
    assert (found["pearson"].low, found["pearson"].high) == pytest.approx((1, 1))
    assert (found["mmrv"].low, found["mmrv"].high) == (0, 0)
    assert found["bias"].high == 0


def test_resampling_interval_matches_a_plain_bootstrap() -> None:
    rng = np.random.default_rng(1)
    real = (rng.random((5, 80)) < np.array([0.1, 0.3, 0.5, 0.7, 0.9])[:, None]).astype(float)
    simulated = (rng.random((5, 80)) < np.array([0.2, 0.2, 0.6, 0.6, 0.8])[:, None]).astype(float)
    ones = np.ones_like(real)
    found = agree(Outcomes(real, ones, simulated, ones), resamples=800)["pearson"]
    draws = []
    for _ in range(800):
        index = rng.integers(80, size=80)
        draws.append(np.corrcoef(real[:, index].mean(1), simulated[:, index].mean(1))[0, 1])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, (0.025, 0.975))), abs=0.02)


def test_resampling_keeps_every_policy_supplied() -> None:
    """A policy with one episode among many keeps it in every resample."""
    count = np.zeros((2, 40))
    count[0, :39], count[1, 39] = 1, 1
    outcomes = Outcomes(count / 2, count, count / 3, count)
    weights = outcomes.resample(50, seed=0)
    assert (weights[:, 39] == 1).all()
    assert (weights.sum(1) == 40).all()
    assert np.isfinite(outcomes.scores(weights)[0]).all()
