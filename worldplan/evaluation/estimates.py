"""Estimates: numbers with intervals.

Rates of success take Wilson's interval, or Clopper and Pearson's where a guarantee is claimed; never
the normal approximation. Two policies are compared by an interval on their difference, never by
looking whether their intervals overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from worldplan.errors import UsageError
from worldplan.types import Array, Estimate

CONFIDENCE = 0.95
RESAMPLES = 2000


def wilson(successes: int, n: int, confidence: float = CONFIDENCE) -> Estimate:
    """Success rate k/n with Wilson's score interval.

    ``(p + z^2/2n ± z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)``. Source: Wilson 1927.
    """
    return _binomial(successes, n, confidence, "wilson")


def clopper_pearson(successes: int, n: int, confidence: float = CONFIDENCE) -> Estimate:
    """Success rate k/n with the exact interval: covers at least as often as it says."""
    return _binomial(successes, n, confidence, "exact")


def rate(outcomes: Iterable[bool | None], confidence: float = CONFIDENCE) -> Estimate:
    """Share of successes with Wilson's interval; episodes of unknown success are left out of n."""
    known = [bool(outcome) for outcome in outcomes if outcome is not None]
    return wilson(sum(known), len(known), confidence)


def bootstrap(
    values: Sequence[float] | Array,
    statistic: Callable[[Array], Array] | None = None,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """A statistic of independent units, by default the mean, with the percentile bootstrap.

    Args:
        values: ``[n]``, or ``[n, ...]`` where a unit has several numbers.
        statistic: maps resampled values ``[R, n, ...]`` to ``[R]``.
        seed: the resampling is the only thing random here.
        resamples: R.
        confidence: share of the interval.

    Raises:
        UsageError: a value is not finite.
    """
    array = finite(values, "values")
    method = f"bootstrap {_percent(confidence)}"
    if not len(array):
        return Estimate(None, None, None, 0, method)
    measure = statistic or (lambda sample: sample.mean(1))
    value = float(measure(array[None])[0])
    if len(array) == 1:  # one unit says nothing about spread
        return Estimate(value, None, None, 1, method)
    rng = np.random.default_rng(seed)
    draws = measure(array[rng.integers(len(array), size=(resamples, len(array)))])
    low, high = np.quantile(draws, ((1 - confidence) / 2, (1 + confidence) / 2))
    return Estimate(value, float(low), float(high), len(array), method)


def newcombe(
    first: int, first_n: int, second: int, second_n: int, confidence: float = CONFIDENCE
) -> Estimate:
    """Difference of two unpaired success rates, first minus second.

    ``d - sqrt((p1-l1)^2 + (u2-p2)^2)`` to ``d + sqrt((u1-p1)^2 + (p2-l2)^2)`` with Wilson's limits.
    `n` counts both. Source: Newcombe 1998, method 10.
    """
    method = f"newcombe {_percent(confidence)}"
    one, two = wilson(first, first_n, confidence), wilson(second, second_n, confidence)
    if one.value is None or two.value is None:
        return Estimate(None, None, None, first_n + second_n, method)
    difference = one.value - two.value
    low = difference - math.hypot(one.value - _limit(one.low), _limit(two.high) - two.value)
    high = difference + math.hypot(_limit(one.high) - one.value, two.value - _limit(two.low))
    return Estimate(difference, low, high, first_n + second_n, method)


def paired_difference(
    first: Sequence[float] | Array,
    second: Sequence[float] | Array,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Mean of first minus second over shared starts, bootstrapped over the starts."""
    one, two = _pair(first, second)
    result = bootstrap(one - two, seed=seed, resamples=resamples, confidence=confidence)
    return Estimate(result.value, result.low, result.high, result.n, f"paired {result.method}")


def mcnemar(first: Sequence[bool] | Array, second: Sequence[bool] | Array, mid: bool = False) -> Estimate:
    """Two-sided exact p-value that two policies succeed equally often from the same starts.

    Only starts where exactly one succeeds say anything: of b + c of them, b is binomial with
    probability 1/2. `mid` counts the observed split half, which is less conservative. The value is
    p, `n` the number of starts, and `method` gives b and c.
    """
    one, two = _pair(np.asarray(first, np.float64), np.asarray(second, np.float64))
    if not np.isin(np.concatenate((one, two)), (0, 1)).all():
        raise UsageError("McNemar's test compares successes", expected="True or False for each start")
    only_first, only_second = int(((one == 1) & (two == 0)).sum()), int(((one == 0) & (two == 1)).sum())
    method = f"mcnemar {'mid-p' if mid else 'exact'}, b={only_first} c={only_second}"
    if not len(one):
        return Estimate(None, None, None, 0, method)
    discordant, fewer = only_first + only_second, min(only_first, only_second)
    if not discordant:
        return Estimate(1.0, None, None, len(one), method)
    p = float(stats.binomtest(fewer, discordant, 0.5).pvalue)
    if mid:
        p = min(1.0, 2 * float(stats.binom.cdf(fewer, discordant, 0.5)))
        p -= float(stats.binom.pmf(fewer, discordant, 0.5))
    return Estimate(p, None, None, len(one), method)


def quantile(values: Sequence[float] | Array, q: float, confidence: float = CONFIDENCE) -> Estimate:
    """A quantile with the interval order statistics give, which assumes nothing of the distribution.

    An end of the interval is None where there are too few values to bound it.
    """
    array = finite(values, "values")
    method = f"order statistics {_percent(confidence)}"
    if not len(array):
        return Estimate(None, None, None, 0, method)
    interval: Any = stats.quantile_test(array, p=q).confidence_interval(confidence)
    low, high = float(interval.low), float(interval.high)
    ends = (low if math.isfinite(low) else None, high if math.isfinite(high) else None)
    return Estimate(float(np.quantile(array, q)), *ends, len(array), method)


def fisher_z(correlation: float, units: int, confidence: float = CONFIDENCE) -> Estimate:
    """A correlation of `units` independent pairs with ``tanh(atanh r ± z / sqrt(units - 3))``."""
    method = f"fisher z {_percent(confidence)}"
    if units <= 3 or abs(correlation) >= 1:
        return Estimate(correlation, None, None, units, method)
    half = float(stats.norm.ppf((1 + confidence) / 2)) / math.sqrt(units - 3)
    centre = math.atanh(correlation)
    return Estimate(correlation, math.tanh(centre - half), math.tanh(centre + half), units, method)


def finite(values: Sequence[float] | Array, name: str) -> Array:
    """float64 array of `values`; raises `UsageError` naming the first that is not finite."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} are not numbers", expected="finite numbers", found=str(error)) from error
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))
        where = ", ".join(map(str, bad[0]))
        raise UsageError(
            f"{name} hold a number that is not finite",
            expected="finite numbers; leave unknown scores out",
            found=f"{array[tuple(bad[0])]} at index {where}",
        )
    return array


def _binomial(successes: int, n: int, confidence: float, method: str) -> Estimate:
    if not 0 <= successes <= n:
        raise UsageError("not a count of successes", expected=f"0 to n = {n}", found=str(successes))
    name = f"{'clopper-pearson' if method == 'exact' else method} {_percent(confidence)}"
    if n == 0:
        return Estimate(None, None, None, 0, name)
    test = stats.binomtest(int(successes), int(n))
    interval = test.proportion_ci(confidence, method="exact" if method == "exact" else "wilson")
    return Estimate(successes / n, float(interval.low), float(interval.high), int(n), name)


def _pair(first: Sequence[float] | Array, second: Sequence[float] | Array) -> tuple[Array, Array]:
    one, two = finite(first, "scores of the first"), finite(second, "scores of the second")
    if one.shape != two.shape or one.ndim != 1:
        raise UsageError(
            "a paired comparison needs one score of each for every start",
            expected=f"{one.shape} as the first",
            found=str(two.shape),
        )
    return one, two


def _limit(end: float | None) -> float:
    assert end is not None
    return end


def _percent(confidence: float) -> str:
    if not 0 < confidence < 1:
        raise UsageError("not a confidence", expected="a share between 0 and 1", found=str(confidence))
    return f"{confidence * 100:g}%"
