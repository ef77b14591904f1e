"""Every planner keeps the contract that `worldplan.testing` states; a new planner adds a row."""

from __future__ import annotations

import pytest

from worldplan.planners.cem import CEM
from worldplan.planners.random_shooting import RandomShooting
from worldplan.planners.score import Scoring
from worldplan.testing.planners import check_planner


@pytest.mark.parametrize(
    ("planner", "share"),
    [
        (CEM(horizon=3, num_samples=200, num_elites=20, num_iterations=10), 0.95),
        (CEM(horizon=3, num_samples=200, num_elites=20, num_iterations=10, return_best="best"), 0.95),
        (CEM(horizon=3, num_samples=100, num_elites=10, num_iterations=8, tolerance=0.1), 0.9),
        (CEM(horizon=3, num_samples=100, num_elites=10, num_iterations=8, scoring=Scoring(64)), 0.9),
        (RandomShooting(horizon=2, num_samples=1500), 0.5),
        (RandomShooting(horizon=2, num_samples=500, num_iterations=3, distribution="normal"), 0.5),
    ],
    ids=["cem", "cem-best", "cem-early", "cem-chunked", "shooting", "shooting-normal"],
)
def test_planner(planner, share):
    assert "improvement" in check_planner(lambda: planner, share=share)
