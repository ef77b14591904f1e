"""Schedules against their closed form."""

from __future__ import annotations

import math

import pytest

from worldplan.training.schedules import Schedule, progress


def test_warm_up_rises_linearly_to_one() -> None:
    schedule = Schedule(warmup=0.2)
    assert [schedule(p) for p in (0, 0.05, 0.1, 0.2)] == pytest.approx([0, 0.25, 0.5, 1])


@pytest.mark.parametrize(
    ("decay", "middle", "end"), [("cosine", 0.55, 0.1), ("linear", 0.55, 0.1), ("constant", 1.0, 1.0)]
)
def test_decay_reaches_its_floor(decay: str, middle: float, end: float) -> None:
    schedule = Schedule(warmup=0.0, decay=decay, floor=0.1)  # type: ignore[arg-type]
    assert schedule(0.5) == pytest.approx(middle) and schedule(1.0) == pytest.approx(end)


def test_cosine_is_a_cosine() -> None:
    assert Schedule(0.0)(1 / 3) == pytest.approx((1 + math.cos(math.pi / 3)) / 2)


def test_rates_never_fall_to_zero_within_a_training() -> None:
    rates = [Schedule()(progress(step, 1000, 0.0, None)) for step in range(1000)]
    assert min(rates) > 0 and max(rates) == pytest.approx(1, abs=1e-3)
    assert rates.index(max(rates)) in (9, 10), "the warm-up is the first hundredth"
    assert sum(rates) == pytest.approx(1000 * (0.01 / 2 + 0.99 / 2), rel=1e-3)


def test_progress_is_that_of_the_scarcer_budget() -> None:
    assert progress(0, 10, 5.0, 20.0) == 0.25
    assert progress(8, 10, 5.0, 20.0) == pytest.approx(0.85)
    assert progress(8, 10, 99.0, 20.0) == 1.0
