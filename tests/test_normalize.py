"""Statistics and z-scores: against NumPy, folded over model steps, refused before they are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from worldplan.errors import DataError
from worldplan.normalize import Normalizer, Statistics, measure
from worldplan.types import ActionSpec


def _fitted(mean: tuple[float, ...], std: tuple[float, ...]) -> Normalizer:
    normalizer = Normalizer(len(mean))
    normalizer.fit(Statistics(mean, std, 10))
    return normalizer


def test_statistics_agree_with_numpy_and_leave_nan_rows_out() -> None:
    rows = np.random.default_rng(0).normal([3, -2], [0.5, 4], (1000, 2))
    spoilt = np.concatenate([rows, [[np.nan, 1e9]], [[np.inf, 0]]])
    statistics = Statistics.of(spoilt, "action")
    assert statistics.count == 1000
    np.testing.assert_allclose(statistics.mean, rows.mean(0))
    np.testing.assert_allclose(statistics.std, rows.std(0))


def test_constant_dimensions_get_a_standard_deviation_of_one() -> None:
    assert Statistics.of(np.full((5, 1), 512.3), "x").std == (1.0,)


def test_nothing_finite_is_an_error_that_names_the_column() -> None:
    for rows in (np.full((4, 2), np.nan), np.zeros((0, 2))):
        with pytest.raises(DataError, match="no finite row to measure action on"):
            Statistics.of(rows, "action")


def test_normalised_data_has_mean_zero_and_deviation_one() -> None:
    rows = np.random.default_rng(1).normal([30, -2], [0.05, 4], (4000, 2))
    normalizer = Normalizer(2)
    normalizer.fit(measure({"action": rows}, ("action",))["action"])
    scores = normalizer.normalize(torch.from_numpy(rows).float())
    assert torch.allclose(scores.mean(0), torch.zeros(2), atol=1e-3)
    assert torch.allclose(scores.std(0), torch.ones(2), atol=1e-2)
    back = normalizer.unnormalize(scores)
    assert torch.allclose(back, torch.from_numpy(rows).float(), atol=1e-4)


def test_statistics_fold_over_the_actions_of_a_model_step() -> None:
    normalizer = _fitted((1.0, 10.0), (2.0, 5.0))
    step = torch.tensor([[[3.0, 15.0, 1.0, 10.0, -1.0, 5.0]]])
    assert normalizer.normalize(step).tolist() == [[[1, 1, 0, 0, -1, -1]]]
    with pytest.raises(AssertionError):
        normalizer.normalize(torch.zeros(2, 3))


def test_bounds_are_moved_into_z_scores() -> None:
    low, high = _fitted((0.5,), (0.25,)).bounds(ActionSpec(1, (-1.0,), (1.0,)), repeats=2)
    assert low.tolist() == [-6, -6]
    assert high.tolist() == [2, 2]


def test_an_untrained_normaliser_is_an_error_and_not_the_identity() -> None:
    for use in (Normalizer(2).normalize, Normalizer(2).unnormalize):
        with pytest.raises(DataError, match="statistics"):
            use(torch.zeros(3, 2))


def test_statistics_of_another_size_are_refused() -> None:
    with pytest.raises(AssertionError):
        Normalizer(3).fit(Statistics((0.0,), (1.0,), 5))


def test_statistics_travel_in_the_state_dict() -> None:
    copy = Normalizer(2)
    copy.load_state_dict(_fitted((1.0, 2.0), (3.0, 4.0)).state_dict())
    assert copy.unnormalize(torch.ones(1, 2)).tolist() == [[4, 6]]


def test_gradients_flow_through() -> None:
    value = torch.zeros(1, 2, requires_grad=True)
    _fitted((0.0, 0.0), (2.0, 4.0)).normalize(value).sum().backward()
    assert value.grad is not None
    assert value.grad.tolist() == [[0.5, 0.25]]
