"""Intervals on agreement: episodes are resampled by their starts, together for all policies.

The interval covers the choice of starts. It does not cover the choice of policies, nor the seeds the
policies and the model were trained with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from worldplan.evaluation import agreement
from worldplan.evaluation.estimates import CONFIDENCE
from worldplan.types import Array, Estimate

Measure = Callable[..., float | None]


@dataclass(frozen=True)
class Outcomes:
    """Scores per episode of P policies, summed per start, so that starts can be resampled.

    Attributes:
        real_sum: ``[P, E]`` sum of the scores of each policy from each of E starts.
        real_count: ``[P, E]`` number of episodes behind it, 0 where there are none.
        simulated_sum: ``[P, E]``, the same in the model.
        simulated_count: ``[P, E]``.
    """

    real_sum: Array
    real_count: Array
    simulated_sum: Array
    simulated_count: Array

    def __post_init__(self) -> None:
        """Checks that all four agree in shape."""
        shapes = {array.shape for array in vars(self).values()}
        assert len(shapes) == 1 and self.real_sum.ndim == 2, shapes

    def scores(self, weights: Array | None = None) -> tuple[Array, Array]:
        """Mean scores ``[R, P]`` of both sides when each start counts ``weights [R, E]`` times."""
        if weights is None:
            weights = np.ones((1, self.real_sum.shape[1]))
        real = (weights @ self.real_sum.T) / (weights @ self.real_count.T)
        return real, (weights @ self.simulated_sum.T) / (weights @ self.simulated_count.T)

    def resample(self, resamples: int, seed: int) -> Array:
        """Weights ``[R, E]``: starts drawn with replacement, paired across policies and sides.

        Starts run by the same policies on the same sides are drawn among themselves, so no policy
        runs out of episodes.
        """
        rng = np.random.default_rng(seed)
        present = np.concatenate((self.real_count > 0, self.simulated_count > 0)).T  # [E, 2P]
        kinds, kind_of = np.unique(present, axis=0, return_inverse=True)
        weights = np.zeros((resamples, len(present)))
        for kind in range(len(kinds)):
            members = np.flatnonzero(kind_of.reshape(-1) == kind)
            share = np.full(len(members), 1 / len(members))
            weights[:, members] = rng.multinomial(len(members), share, resamples)
        return weights


def agree(
    outcomes: Outcomes,
    *,
    weight_by: agreement.Side = "real",
    ties: agreement.Ties = "simpler",
    seed: int = 0,
    resamples: int = 1000,
    confidence: float = CONFIDENCE,
) -> dict[str, Estimate]:
    """Every measure of `agreement` with an interval; `n` is the number of policies.

    Keys: pearson, spearman, kendall, mmrv, pairwise_accuracy, regret_at_1, precision_at_1 (and both at
    3 from four policies on), mean_absolute_error, bias, slope, intercept, permutation_p. For the first
    four also ``<key>_leave_one_out``, whose ends are the range over leaving out each policy in turn.

    Args:
        outcomes: what happened from each start.
        weight_by: see `agreement.mmrv`.
        ties: see `agreement.mmrv`.
        seed: of the resampling, the only thing random here.
        resamples: R.
        confidence: share of the intervals.
    """
    policies, starts = outcomes.real_sum.shape
    real, simulated = (side[0] for side in outcomes.scores())
    drawn = list(zip(*outcomes.scores(outcomes.resample(resamples, seed)), strict=True))
    method = f"bootstrap over {starts} starts {confidence * 100:g}%"
    measures = _measures(policies, weight_by, ties)
    result = {
        name: _interval(
            measure(real=real, simulated=simulated),
            [measure(real=r, simulated=s) for r, s in drawn] if starts > 1 else [],
            (policies, confidence, method),
        )
        for name, measure in measures.items()
    }
    p = agreement.permutation_p(real=real, simulated=simulated, seed=seed)
    result["permutation_p"] = Estimate(p, None, None, policies, "permutation of policies, one-sided")
    for name in ("pearson", "spearman", "kendall", "mmrv"):
        without = agreement.leave_one_out(measures[name], real=real, simulated=simulated)
        known = [value for value in without if value is not None]
        low, high = min(known, default=None), max(known, default=None)
        result[f"{name}_leave_one_out"] = Estimate(
            result[name].value, low, high, policies, "range, leaving out each policy"
        )
    return result


def _measures(policies: int, weight_by: agreement.Side, ties: agreement.Ties) -> dict[str, Measure]:
    measures: dict[str, Measure] = {
        "pearson": agreement.pearson,
        "spearman": agreement.spearman,
        "kendall": agreement.kendall,
        "mmrv": partial(agreement.mmrv, weight_by=weight_by, ties=ties),
        "pairwise_accuracy": agreement.pairwise_accuracy,
    }
    for k in (1, 3) if policies > 3 else (1,):
        measures[f"regret_at_{k}"] = partial(agreement.regret_at_k, k=k)
        measures[f"precision_at_{k}"] = partial(agreement.precision_at_k, k=k)
    measures["mean_absolute_error"] = agreement.mean_absolute_error
    measures["bias"] = agreement.bias
    measures["slope"] = partial(_line, 0)
    measures["intercept"] = partial(_line, 1)
    return measures


def _line(part: int, *, real: Array, simulated: Array) -> float | None:
    fitted = agreement.calibration(real=real, simulated=simulated)
    return None if fitted is None else fitted[part]


def _interval(value: float | None, draws: Sequence[float | None], about: tuple[int, float, str]) -> Estimate:
    policies, confidence, method = about
    known = [draw for draw in draws if draw is not None]
    # an interval over the few resamples in which the measure exists would claim too much
    if value is None or not known or len(known) < 0.5 * len(draws):
        return Estimate(value, None, None, policies, method)
    low, high = np.quantile(known, ((1 - confidence) / 2, (1 + confidence) / 2))
    return Estimate(value, float(low), float(high), policies, method)
