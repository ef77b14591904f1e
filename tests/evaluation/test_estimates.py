"""Intervals against worked examples, statsmodels where it is installed, and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from worldplan.errors import UsageError
from worldplan.evaluation import estimates as es

INTERVALS = [
    # k, n, clopper-pearson, wilson
    (7, 10, (0.347547, 0.933260), (0.396778, 0.892209)),
    (0, 10, (0.0, 0.308497), (0.0, 0.277533)),
    (10, 10, (0.691503, 1.0), (0.722467, 1.0)),
    (45, 50, (0.781865, 0.966725), (0.786398, 0.956524)),
]


@pytest.mark.parametrize(("k", "n", "exact", "score"), INTERVALS)
def test_one_rate(k: int, n: int, exact: tuple[float, float], score: tuple[float, float]) -> None:
    one, two = es.clopper_pearson(k, n), es.wilson(k, n)
    assert (one.low, one.high) == pytest.approx(exact, abs=1e-6)
    assert (two.low, two.high) == pytest.approx(score, abs=1e-6)
    assert one.value == two.value == k / n
    assert (one.n, two.n) == (n, n)
    assert (one.method, two.method) == ("clopper-pearson 95%", "wilson 95%")


def test_nothing_was_run() -> None:
    for found in (
        es.wilson(0, 0),
        es.clopper_pearson(0, 0),
        es.rate([]),
        es.rate([None, None]),
        es.bootstrap([]),
        es.quantile([], 0.5),
        es.newcombe(0, 0, 3, 4),
        es.mcnemar([], []),
        es.paired_difference([], []),
    ):
        assert (found.value, found.low, found.high) == (None, None, None)
    assert es.rate([]).n == 0


def test_unknown_outcomes_do_not_count() -> None:
    assert es.rate([True, None, False, None]) == es.wilson(1, 2)


@pytest.mark.parametrize(("k", "n"), [(-1, 3), (4, 3), (0, -1)])
def test_impossible_counts_are_refused(k: int, n: int) -> None:
    with pytest.raises(UsageError, match="not a count"):
        es.wilson(k, n)


def test_a_confidence_is_a_share() -> None:
    with pytest.raises(UsageError, match="share between 0 and 1"):
        es.wilson(1, 2, confidence=95)


def test_difference_of_two_rates() -> None:
    found = es.newcombe(45, 50, 36, 50)
    assert found.value == pytest.approx(0.18)
    assert (found.low, found.high) == pytest.approx((0.025130, 0.327880), abs=1e-6)


def test_mcnemar() -> None:
    first = np.array([True] * 11 + [False] * 2 + [True] * 30 + [False] * 7)
    second = np.array([False] * 11 + [True] * 2 + [True] * 30 + [False] * 7)
    found = es.mcnemar(first, second)
    assert found.value == pytest.approx(0.022461, abs=1e-6)
    assert found.n == 50
    assert found.method == "mcnemar exact, b=11 c=2"
    assert es.mcnemar(first, second, mid=True).value == pytest.approx(0.012939, abs=1e-6)
    assert es.mcnemar(first, first).value == 1


def test_paired_difference_is_narrower_than_unpaired() -> None:
    first = np.array([1.0] * 11 + [0] * 2 + [1] * 30 + [0] * 7)
    second = np.array([0.0] * 11 + [1] * 2 + [1] * 30 + [0] * 7)
    found, unpaired = es.paired_difference(first, second), es.newcombe(41, 50, 32, 50)
    assert found.value == pytest.approx(unpaired.value)
    assert found.high - found.low < unpaired.high - unpaired.low
    # the standard error known for these counts
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.067469, rel=0.1)


def test_pairs_must_fit() -> None:
    with pytest.raises(UsageError, match="one score of each"):
        es.paired_difference([1.0, 0.0], [1.0])
    with pytest.raises(UsageError, match="True or False"):
        es.mcnemar([0.5, 1.0], [1.0, 0.0])  # type: ignore[list-item]


def test_bootstrap_is_a_function_of_its_seed() -> None:
    values = np.random.default_rng(0).normal(size=40)
    assert es.bootstrap(values, seed=3) == es.bootstrap(values, seed=3)
    assert es.bootstrap(values, seed=3) != es.bootstrap(values, seed=4)
    half = 1.96 * values.std() / math.sqrt(40)
    found = es.bootstrap(values)
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.05)


def test_bootstrap_of_one_unit_has_no_interval() -> None:
    found = es.bootstrap([0.5])
    assert (found.value, found.low, found.high, found.n) == (0.5, None, None, 1)


def test_bootstrap_takes_any_statistic() -> None:
    found = es.bootstrap([1.0, 2.0, 9.0], lambda sample: np.median(sample, 1))
    assert found.value == 2
    assert (found.low, found.high) == (1, 9)


@pytest.mark.parametrize("function", [es.bootstrap, lambda values: es.quantile(values, 0.5)])
def test_nan_is_refused(function) -> None:  # noqa: ANN001
    with pytest.raises(UsageError, match="index 1"):
        function([1.0, math.nan])


def test_quantile_interval_covers() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        found = es.quantile(rng.exponential(size=60), 0.5)
        inside += found.low <= math.log(2) <= found.high
    assert inside / 200 >= 0.93


def test_quantile_without_enough_values_is_open() -> None:
    found = es.quantile([1.0, 2.0, 3.0], 0.95)
    assert found.value == pytest.approx(2.9)
    assert found.high is None
    assert found.n == 3


def test_fisher_z_needs_four_units() -> None:
    assert es.fisher_z(0.9, 3).low is None
    assert es.fisher_z(1.0, 9).low is None


def test_wilson_matches_statsmodels() -> None:
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    for k in range(0, 21, 4):
        found = es.wilson(k, 20, confidence=0.9)
        expected = proportion.proportion_confint(k, 20, alpha=0.1, method="wilson")
        assert (found.low, found.high) == pytest.approx(expected)
