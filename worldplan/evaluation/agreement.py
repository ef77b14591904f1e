"""Agreement: how far the scores of policies in one place predict their scores in another.

``R_i`` is the reference score of policy i (`real`: the simulator or the robot), ``S_i`` its score
under the evaluator (`simulated`: the world model). All measures take both by keyword, because the
order matters for some and is confused in published code. What is undefined is None, never NaN:
fewer than two policies, or a constant side where a correlation is asked for.

The independent units are the policies; several checkpoints of one training run are fewer units
than they look. Intervals are in `resampling`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
from scipy import stats

from worldplan.errors import ConfigError, UsageError, suggest
from worldplan.evaluation.estimates import finite
from worldplan.types import Array

Side = Literal["real", "simulated"]
Ties = Literal["simpler", "paper", "exclude", "both"]
Scores = Sequence[float] | Array

# signs of R_i - R_j and S_i - S_j -> whether i is charged with a violation by j
_VIOLATED: dict[str, Callable[[Array, Array], Array]] = {
    "simpler": lambda real, simulated: (simulated > 0) != (real > 0),
    "paper": lambda real, simulated: (simulated < 0) != (real < 0),
    "exclude": lambda real, simulated: simulated * real < 0,
    "both": lambda real, simulated: simulated != real,
}


def pearson(*, real: Scores, simulated: Scores) -> float | None:
    """Pearson's r (not r squared); None if either side is constant."""
    reference, scores = _checked(real, simulated)
    if _constant(reference) or _constant(scores):
        return None
    centred, other = reference - reference.mean(), scores - scores.mean()
    # rounding must not push a perfect line outside [-1, 1]
    return float(np.clip(centred @ other / math.sqrt((centred @ centred) * (other @ other)), -1, 1))


def spearman(*, real: Scores, simulated: Scores) -> float | None:
    """Spearman's rho: Pearson's r of mid-ranks; None if either side is constant."""
    reference, scores = _checked(real, simulated)
    return pearson(real=stats.rankdata(reference), simulated=stats.rankdata(scores))


def kendall(*, real: Scores, simulated: Scores) -> float | None:
    """Kendall's tau-b: ``(C - D) / sqrt((n0 - n1)(n0 - n2))``; None if either side is constant."""
    reference, scores = _order(*_checked(real, simulated))
    pairs = math.sqrt(float((reference**2).sum()) * float((scores**2).sum()))
    return float((reference * scores).sum() / pairs) if pairs else None


def mmrv(
    *, real: Scores, simulated: Scores, weight_by: Side = "real", ties: Ties = "simpler"
) -> float | None:
    """Mean maximum rank violation; lower is better, in units of the score.

    ``1/P sum_i max_j |R_i - R_j| [(S_i < S_j) != (R_i < R_j)]``

    Args:
        real: reference scores ``[P]``.
        simulated: evaluator's scores ``[P]``.
        weight_by: whose gap a violation costs. The definition says the reference's; published tables
            with the other side exist, so name the side beside the number.
        ties: ``"paper"`` compares with ``<``, ``"simpler"`` with ``>`` as the released code does (they
            charge different members of a tied pair), ``"both"`` charges both, ``"exclude"`` neither.

    Returns:
        None for fewer than two policies, or if no two differ on the weighing side.

    Source: Li et al., "Evaluating real-world robot manipulation policies in simulation", 2024.
    """
    worst = violations(real=real, simulated=simulated, weight_by=weight_by, ties=ties)
    weighing = finite(real if weight_by == "real" else simulated, "scores")
    if len(worst) < 2 or not np.ptp(weighing):
        return None
    return float(worst.mean())


def violations(*, real: Scores, simulated: Scores, weight_by: Side = "real", ties: Ties = "simpler") -> Array:
    """``[P]`` the worst rank violation of each policy, of which `mmrv` is the mean."""
    _known("weight_by", weight_by, ("real", "simulated"))
    _known("ties", ties, _VIOLATED)
    reference, scores = _checked(real, simulated)
    weighing = reference if weight_by == "real" else scores
    gap = np.abs(weighing[:, None] - weighing)
    worst: Array = (gap * _VIOLATED[ties](*_order(reference, scores))).max(1, initial=0.0)
    return worst


def pairwise_accuracy(
    *, real: Scores, simulated: Scores, ties: Literal["half", "wrong"] = "half"
) -> float | None:
    """Share of the pairs with different reference scores that the evaluator orders rightly.

    Pairs that tie in `simulated` count half, or as wrong.
    """
    _known("ties", ties, ("half", "wrong"))
    reference, scores = _order(*_checked(real, simulated))
    different = reference != 0
    if not different.any():
        return None
    credit = np.where(scores == reference, 1.0, np.where(scores == 0, 0.5 if ties == "half" else 0.0, 0.0))
    return float(credit[different].mean())


def regret_at_k(*, real: Scores, simulated: Scores, k: int = 1) -> float | None:
    """``max_i R_i - max over the k policies with the largest S of R_j``.

    Ties in `simulated` at the cut are broken at random; the expectation is returned. None if k is more
    than the number of policies. Source: Fu et al., "Benchmarks for deep off-policy evaluation", 2021.
    """
    reference, scores = _checked(real, simulated)
    if not _fits(k, len(reference)):
        return None
    cut = np.sort(scores)[-k]
    certain, tied = reference[scores > cut], np.sort(reference[scores == cut])
    drawn = k - len(certain)
    floor = certain.max(initial=-math.inf)
    # the largest of `drawn` out of the tied ones is the j-th smallest with this probability
    ways = [math.comb(j, drawn - 1) / math.comb(len(tied), drawn) for j in range(len(tied))]
    best = sum(way * max(floor, value) for way, value in zip(ways, tied, strict=True) if way)
    return max(0.0, float(reference.max() - best))


def precision_at_k(*, real: Scores, simulated: Scores, k: int = 1) -> float | None:
    """Share of the k best by `simulated` that are among the k best by `real`.

    Ties at either cut are broken at random and independently; the expectation is returned.
    """
    reference, scores = _checked(real, simulated)
    if not _fits(k, len(reference)):
        return None
    return float((_in_top(reference, k) * _in_top(scores, k)).sum() / k)


def mean_absolute_error(*, real: Scores, simulated: Scores) -> float | None:
    """``mean |S - R|``, which ranks and correlations do not see."""
    reference, scores = _checked(real, simulated)
    return float(np.abs(scores - reference).mean()) if len(reference) else None


def bias(*, real: Scores, simulated: Scores) -> float | None:
    """``mean(S - R)``: above 0 the evaluator is optimistic."""
    reference, scores = _checked(real, simulated)
    return float((scores - reference).mean()) if len(reference) else None


def root_mean_squared_error(*, real: Scores, simulated: Scores) -> float | None:
    """``sqrt(mean (S - R)^2)``."""
    reference, scores = _checked(real, simulated)
    return math.sqrt(float(((scores - reference) ** 2).mean())) if len(reference) else None


def calibration(*, real: Scores, simulated: Scores) -> tuple[float, float] | None:
    """Slope and intercept of the least-squares line ``R = slope * S + intercept``."""
    reference, scores = _checked(real, simulated)
    if _constant(scores):
        return None
    centred = scores - scores.mean()
    slope = float(centred @ reference / (centred @ centred))
    return slope, float(reference.mean() - slope * scores.mean())


def permutation_p(*, real: Scores, simulated: Scores, seed: int = 0, resamples: int = 9999) -> float | None:
    """One-sided p-value of Pearson's r: how often shuffled policies correlate as well.

    Exact over all orders up to seven policies, else `resamples` random ones drawn from `seed`. With
    three policies it cannot fall below 1/6.
    """
    reference, scores = _checked(real, simulated)
    if pearson(real=reference, simulated=scores) is None:
        return None
    centred = reference - reference.mean()
    result = stats.permutation_test(
        (scores,),
        lambda sample, axis: (sample * centred).sum(axis),
        permutation_type="pairings",
        alternative="greater",
        n_resamples=resamples,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def leave_one_out(
    measure: Callable[..., float | None], *, real: Scores, simulated: Scores
) -> list[float | None]:
    """`measure` without each policy in turn: a number that one policy carries shows here."""
    reference, scores = _checked(real, simulated)
    keep = ~np.eye(len(reference), dtype=bool)
    return [measure(real=reference[rows], simulated=scores[rows]) for rows in keep]


def _checked(real: Scores, simulated: Scores) -> tuple[Array, Array]:
    reference, scores = finite(real, "real scores"), finite(simulated, "simulated scores")
    if reference.ndim != 1 or reference.shape != scores.shape:
        raise UsageError(
            "agreement needs one real and one simulated score of each policy",
            expected=f"as many simulated scores as real ones, {reference.shape}",
            found=f"{scores.shape}",
        )
    return reference, scores


def _order(reference: Array, scores: Array) -> tuple[Array, Array]:
    return np.sign(reference[:, None] - reference), np.sign(scores[:, None] - scores)


def _constant(values: Array) -> bool:
    # means of the same outcomes may differ in the last bit
    return len(values) < 2 or float(np.ptp(values)) <= 1e-12 * max(1.0, float(np.abs(values).max()))


def _in_top(values: Array, k: int) -> Array:
    cut = np.sort(values)[-k]
    above, tied = values > cut, values == cut
    share = float(k - above.sum()) / float(tied.sum())
    inside: Array = above + tied * share
    return inside


def _fits(k: int, policies: int) -> bool:
    if k < 1:
        raise UsageError("k counts policies", expected="1 or more", found=str(k))
    return k <= policies


def _known(name: str, value: str, known: Iterable[str]) -> None:
    if value not in set(known):
        raise ConfigError(f"unknown {name}={value!r}", expected=suggest(value, known))
