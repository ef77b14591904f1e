"""Agreement against worked examples computed elsewhere, published tables, SciPy and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from worldplan.errors import ConfigError, UsageError
from worldplan.evaluation import agreement as ag
from worldplan.evaluation.estimates import fisher_z

# A: no ties
A = {"real": [0.90, 0.70, 0.60, 0.30, 0.10], "simulated": [0.75, 0.80, 0.40, 0.45, 0.05]}
# B: a tie on each side
B = {"real": [0.8, 0.6, 0.6, 0.2], "simulated": [0.5, 0.5, 0.4, 0.1]}
# C: the tables published with SIMPLER; simulated, real, then mmrv by real gap, by simulated gap, r, rho, tau
C = {
    "pick coke can": (
        [0.787, 0.857, 0.710, 0.567, 0.027, 0.170],
        [0.907, 0.853, 0.920, 0.760, 0.133, 0.293],
        (0.031333, 0.061833, 0.975434, 0.7714, 0.6000),
    ),
    "move near": (
        [0.779, 0.442, 0.354, 0.317, 0.050, 0.042],
        [0.733, 0.633, 0.583, 0.450, 0.017, 0.350],
        (0.111000, 0.002667, 0.856097, 0.9429, 0.8667),
    ),
    "open drawer": (
        [0.157, 0.601, 0.463, 0.296, 0.000, 0.009],
        [0.333, 0.815, 0.704, 0.519, 0.000, 0.148],
        (0, 0, 0.983167, 1, 1),
    ),
    "close drawer": (
        [0.343, 0.861, 0.667, 0.891, 0.278, 0.444],
        [0.630, 0.926, 0.889, 0.741, 0.000, 0.519],
        (0.123333, 0.113333, 0.771233, 0.7714, 0.6000),
    ),
    "apple in drawer": (
        [0.037, 0.065, 0.130, 0.213, 0, 0],
        [0.074, 0.185, 0.185, 0.407, 0, 0],
        (0, 0.010833, 0.969172, 0.9852, 0.9636),
    ),
}
MEASURES = [ag.pearson, ag.spearman, ag.kendall, ag.mmrv, ag.pairwise_accuracy]


def test_example_a_orders() -> None:
    assert ag.pearson(**A) == pytest.approx(0.8812340415, abs=1e-10)
    assert ag.spearman(**A) == pytest.approx(0.8)
    assert ag.kendall(**A) == pytest.approx(0.6)
    assert ag.pairwise_accuracy(**A) == pytest.approx(0.80)


@pytest.mark.parametrize("ties", ["simpler", "paper", "exclude", "both"])
def test_example_a_mmrv_does_not_depend_on_ties(ties: ag.Ties) -> None:
    assert ag.mmrv(**A, ties=ties) == pytest.approx(0.20)
    assert ag.mmrv(**A, ties=ties, weight_by="simulated") == pytest.approx(0.04)


def test_example_a_errors_and_calibration() -> None:
    assert ag.mean_absolute_error(**A) == pytest.approx(0.13)
    assert ag.bias(**A) == pytest.approx(-0.03)
    assert ag.root_mean_squared_error(**A) == pytest.approx(0.1396424, abs=1e-7)
    assert ag.calibration(**A) == pytest.approx((0.9291553, 0.0647139), abs=1e-7)


def test_example_a_decisions() -> None:
    assert ag.regret_at_k(**A, k=1) == pytest.approx(0.20)
    assert ag.regret_at_k(**A, k=2) == 0
    assert [ag.precision_at_k(**A, k=k) for k in (1, 2, 3)] == pytest.approx([0, 1, 2 / 3])


def test_example_a_uncertainty() -> None:
    assert ag.permutation_p(**A) == pytest.approx(4 / 120)
    found = fisher_z(ag.pearson(**A), 5)
    assert (found.low, found.high) == pytest.approx((-0.00463958, 0.9921334), abs=1e-6)
    without = ag.leave_one_out(ag.pearson, **A)
    assert without == pytest.approx([0.857945, 0.900539, 0.926360, 0.926595, 0.718517], abs=1e-6)
    assert max(abs(r - ag.pearson(**A)) for r in without) == pytest.approx(0.162717, abs=1e-6)


@pytest.mark.parametrize(
    ("ties", "expected"), [("paper", 0.05), ("simpler", 0.05), ("exclude", 0.0), ("both", 0.10)]
)
def test_example_b_mmrv(ties: ag.Ties, expected: float) -> None:
    assert ag.mmrv(**B, ties=ties) == pytest.approx(expected)


def test_the_worst_violation_of_each_policy() -> None:
    assert ag.violations(**A) == pytest.approx([0.2, 0.2, 0.3, 0.3, 0.0])
    assert ag.violations(**B, ties="paper") == pytest.approx([0, 0.2, 0, 0])
    assert ag.violations(**B, ties="simpler") == pytest.approx([0.2, 0, 0, 0])


def test_example_b_orders() -> None:
    assert ag.pearson(**B) == pytest.approx(0.9446104285, abs=1e-10)
    assert ag.spearman(**B) == pytest.approx(0.8333333333)
    assert ag.kendall(**B) == pytest.approx(0.8)
    assert ag.pairwise_accuracy(**B) == pytest.approx(0.9)
    assert ag.pairwise_accuracy(**B, ties="wrong") == pytest.approx(0.8)


@pytest.mark.parametrize("task", C)
def test_example_c_published_tables(task: str) -> None:
    simulated, real, (by_real, by_simulated, r, rho, tau) = C[task]
    scores = {"real": real, "simulated": simulated}
    assert ag.mmrv(**scores) == pytest.approx(by_real, abs=1e-6)
    assert ag.mmrv(**scores, weight_by="simulated") == pytest.approx(by_simulated, abs=1e-6)
    assert ag.pearson(**scores) == pytest.approx(r, abs=1e-6)
    assert ag.spearman(**scores) == pytest.approx(rho, abs=1e-4)
    assert ag.kendall(**scores) == pytest.approx(tau, abs=1e-4)


def _mmrv_by_loops(real: list[float], simulated: list[float], ties: str) -> float:
    def violates(i: int, j: int) -> bool:
        if ties == "paper":
            return (simulated[i] < simulated[j]) != (real[i] < real[j])
        if ties == "simpler":
            return (simulated[i] > simulated[j]) != (real[i] > real[j])
        product = (simulated[i] - simulated[j]) * (real[i] - real[j])
        different = np.sign(simulated[i] - simulated[j]) != np.sign(real[i] - real[j])
        return product < 0 if ties == "exclude" else bool(different)

    worst = [max(abs(real[i] - real[j]) * violates(i, j) for j in range(len(real))) for i in range(len(real))]
    return sum(worst) / len(worst)


@pytest.mark.parametrize("seed", range(8))
def test_measures_match_scipy_and_loops_with_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    real, simulated = rng.integers(0, 5, (2, 7)) / 4
    scores = {"real": real, "simulated": simulated}
    assert ag.pearson(**scores) == pytest.approx(stats.pearsonr(real, simulated).statistic)
    assert ag.spearman(**scores) == pytest.approx(stats.spearmanr(real, simulated).statistic)
    assert ag.kendall(**scores) == pytest.approx(stats.kendalltau(real, simulated).statistic)
    for ties in ("simpler", "paper", "exclude", "both"):
        expected = _mmrv_by_loops(list(real), list(simulated), ties)
        assert ag.mmrv(**scores, ties=ties) == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_ties_at_the_cut_are_the_mean_over_tie_breaks(k: int) -> None:
    real = np.array([0.9, 0.5, 0.7, 0.5, 0.2])
    simulated = np.array([0.4, 0.4, 0.4, 0.8, 0.1])

    def tops(values: np.ndarray) -> list[set[int]]:
        return [
            set(sorted(range(5), key=lambda i: (-values[i], order[i]))[:k])
            for order in itertools.permutations(range(5))
        ]

    chosen, best = tops(simulated), tops(real)
    regret = np.mean([real.max() - max(real[list(top)]) for top in chosen])
    assert ag.regret_at_k(real=real, simulated=simulated, k=k) == pytest.approx(regret)
    overlap = np.mean([[len(a & b) / k for a in chosen] for b in best])
    assert ag.precision_at_k(real=real, simulated=simulated, k=k) == pytest.approx(overlap)


def test_random_permutations_when_there_are_too_many() -> None:
    rng = np.random.default_rng(0)
    real = rng.random(12)
    simulated = real + rng.normal(0, 0.6, 12)
    p = ag.permutation_p(real=real, simulated=simulated)
    assert p == ag.permutation_p(real=real, simulated=simulated)
    assert p == pytest.approx(stats.pearsonr(real, simulated, alternative="greater").pvalue, abs=0.02)


def test_mmrv_is_a_multiple_of_one_over_policies_times_episodes() -> None:
    rng = np.random.default_rng(1)
    scores = {"real": rng.integers(0, 11, 6) / 10, "simulated": rng.integers(0, 11, 6) / 10}
    assert ag.mmrv(**scores) * 60 == pytest.approx(round(ag.mmrv(**scores) * 60))


@pytest.mark.parametrize("measure", MEASURES)
def test_fewer_than_two_policies_have_no_agreement(measure) -> None:  # noqa: ANN001
    assert measure(real=[0.5], simulated=[0.5]) is None
    assert measure(real=[], simulated=[]) is None


@pytest.mark.parametrize("measure", MEASURES[:3])
def test_correlations_of_a_constant_side_are_none(measure) -> None:  # noqa: ANN001
    assert measure(real=[0.2, 0.2, 0.2], simulated=[0.1, 0.2, 0.3]) is None
    assert measure(real=[0.1, 0.2, 0.3], simulated=[0.2, 0.2, 0.2]) is None


def test_a_constant_side_elsewhere() -> None:
    constant = {"real": [0.1, 0.2, 0.3], "simulated": [0.2, 0.2, 0.2]}
    assert ag.pairwise_accuracy(**constant) == 0.5
    assert ag.mmrv(**constant, ties="exclude") == 0
    assert ag.mmrv(**constant, weight_by="simulated") is None
    assert ag.calibration(**constant) is None
    assert ag.permutation_p(**constant) is None
    assert ag.mmrv(real=[0.2, 0.2], simulated=[0.1, 0.3]) is None
    assert ag.pairwise_accuracy(real=[0.2, 0.2], simulated=[0.1, 0.3]) is None


def test_perfect_lines_stay_within_one() -> None:
    real = [0.1, 0.2, 0.3, 0.7]
    assert ag.pearson(real=real, simulated=[3 * x for x in real]) == pytest.approx(1)
    assert abs(ag.pearson(real=real, simulated=[-x / 3 for x in real])) <= 1


def test_the_sides_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        ag.mmrv([0.1, 0.2], [0.1, 0.2])  # type: ignore[misc]


@pytest.mark.parametrize("bad", [math.nan, math.inf, None])
def test_scores_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(UsageError, match=r"simulated scores .*\n.*\n.*index 1"):
        ag.pearson(real=[0.1, 0.2], simulated=[0.1, bad])


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="one real and one simulated"):
        ag.kendall(real=[0.1, 0.2], simulated=[0.1])
    with pytest.raises(ConfigError, match="did you mean simpler"):
        ag.mmrv(**A, ties="simple")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="weight_by"):
        ag.mmrv(**A, weight_by="sim")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="k counts policies"):
        ag.regret_at_k(**A, k=0)
    assert ag.regret_at_k(**A, k=6) is None
    assert ag.precision_at_k(**A, k=6) is None
