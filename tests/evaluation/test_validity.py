"""Curves of pairs of episodes whose errors are known by construction."""

from __future__ import annotations

import json

import numpy as np
import pytest

from worldplan.errors import DataError, UsageError
from worldplan.evaluation.validity import CEILING, Validity, psnr, validate
from worldplan.types import Array, Episode


def episode(start: str, source: str, frames: Array, states: Array, **meta: object) -> Episode:
    steps = len(frames) - 1
    obs = {"pixels": frames.astype(np.uint8), "state": states.astype(np.float32)}
    return Episode(
        obs, np.zeros((steps, 1)), np.zeros(steps), False, True, {"start": start, "source": source} | meta
    )


def moving(start: str, source: str, wrong: float = 0.0, steps: int = 4, **meta: object) -> Episode:
    """Brightness and position grow by 10 and 1 a step; `wrong` is added times the step."""
    time = np.arange(steps + 1)
    frames = np.ones((steps + 1, 2, 2, 3)) * (10 + (10 + wrong) * time)[:, None, None, None]
    states = np.stack((time * (1 + wrong / 10), np.zeros(steps + 1)), -1)
    return episode(start, source, frames, states, **meta)


def test_psnr_by_hand() -> None:
    assert psnr(np.array([1.0, 255.0**2, 0.0])) == pytest.approx([48.1308, 0, CEILING], abs=1e-4)


def test_curves_and_the_copy_beside_them() -> None:
    starts = ["s0", "s1", "s2"]
    found = validate([moving(s, "real") for s in starts], [moving(s, "model", 1.0) for s in starts])
    assert found.pairs == 3
    curve, copy = found.curves["psnr"], found.curves["psnr_copy"]
    assert curve.unit == "dB"
    assert list(curve.steps) == [0, 1, 2, 3, 4]
    assert curve.value == pytest.approx([CEILING, *psnr(np.array([1.0, 4.0, 9.0, 16.0]))])
    assert copy.value == pytest.approx([CEILING, *psnr(np.array([100.0, 400.0, 900.0, 1600.0]))])
    assert found.curves["state_error"].value == pytest.approx([0, 0.1, 0.2, 0.3, 0.4], abs=1e-6)
    assert found.curves["state_error_copy"].value == pytest.approx([0, 1, 2, 3, 4])
    assert list(curve.n) == [3] * 5
    assert found.estimates["psnr_gain"].value == pytest.approx(20)
    assert found.estimates["state_error_gain"].value == pytest.approx(2.25, abs=1e-6)
    assert found.estimates["state_error"].n == 3


def test_intervals_contain_the_value_also_in_decibels() -> None:
    starts = [f"s{i}" for i in range(8)]
    imagined = [moving(s, "model", wrong) for s, wrong in zip(starts, range(1, 9), strict=True)]
    curve = validate([moving(s, "real") for s in starts], imagined).curves["psnr"]
    assert (curve.low[1:] < curve.value[1:]).all()
    assert (curve.value[1:] < curve.high[1:]).all()


def test_pairs_end_with_the_shorter_episode() -> None:
    real = [moving("a", "real", steps=6), moving("b", "real", steps=2)]
    imagined = [moving("b", "model", steps=6), moving("a", "model", steps=4)]
    assert list(validate(real, imagined).curves["psnr"].n) == [2, 2, 2, 1, 1]


def test_the_frame_skip_compares_every_so_many_steps() -> None:
    curve = validate([moving("a", "real")], [moving("a", "model", 1.0)], every=2).curves["state_error"]
    assert list(curve.steps) == [0, 2, 4]
    assert curve.value == pytest.approx([0, 0.2, 0.4], abs=1e-6)
    assert np.isnan(curve.low).all()  # one episode says nothing about spread


def test_a_task_names_its_own_distances() -> None:
    def errors(first: Array, second: Array) -> dict[str, Array]:
        return {"block_px": np.abs(first - second)[..., 0]}

    pair = [moving("a", "real")], [moving("a", "model", 1.0)]
    found = validate(*pair, frames=None, errors=errors, units={"block_px": "px"})
    assert sorted(found.curves) == ["block_px", "block_px_copy"]
    assert found.curves["block_px"].unit == "px"


def test_pairs_need_the_same_policy_where_both_have_one() -> None:
    real = [moving("a", "real", policy="x"), moving("a", "real", policy="y", steps=2)]
    found = validate(real, [moving("a", "model", policy="y")])
    assert len(found.curves["psnr"].steps) == 3
    with pytest.raises(DataError, match="2 real episodes fit"):
        validate(real, [moving("a", "model")])


def test_wrong_input_is_refused() -> None:
    real, imagined = moving("a", "real"), moving("a", "model")
    with pytest.raises(UsageError, match="no imagined episode begins"):
        validate([real], [moving("b", "model")])
    with pytest.raises(UsageError, match="no imagined episode begins"):
        validate([], [])
    with pytest.raises(UsageError, match="real episode says it is imagined"):
        validate([imagined], [real])
    with pytest.raises(DataError, match="has no 'depth'(.|\n)*pixels, state"):
        validate([real], [imagined], frames="depth")
    small = episode("a", "model", np.zeros((5, 1, 1, 3)), np.zeros((5, 2)))
    with pytest.raises(DataError, match="differs in shape"):
        validate([real], [small])
    with pytest.raises(DataError, match="not finite"):
        validate([real], [episode("a", "model", np.zeros((5, 2, 2, 3)), np.full((5, 2), np.nan))])


def test_what_was_found_survives_json() -> None:
    found = validate([moving("a", "real")], [moving("a", "model", 1.0)])
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    again = Validity.from_json(data)
    assert again.estimates == found.estimates
    assert again.pairs == 1
    for name, curve in found.curves.items():
        for field in ("steps", "value", "low", "high", "n"):
            np.testing.assert_array_equal(getattr(again.curves[name], field), getattr(curve, field))
        assert (again.curves[name].name, again.curves[name].unit) == (curve.name, curve.unit)
    for broken in ({}, {"curves": []}, {**data, "pairs": None}):
        with pytest.raises(DataError, match="no validity"):
            Validity.from_json(broken)
