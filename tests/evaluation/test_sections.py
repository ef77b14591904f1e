"""The tables of a report, on records whose answers are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from worldplan.evaluation.estimates import wilson
from worldplan.evaluation.sections import episodes, natural, successes
from worldplan.types import EvalRecord


def some(policy: str, wins: int, n: int = 10, source: str = "real", **meta: object) -> list[EvalRecord]:
    model = "judge" if source == "model" else None
    return [
        EvalRecord("pusht", policy, i, f"s{i}", source, float(i < wins), i < wins, 5 + i, 0.1, model, meta)  # type: ignore[arg-type]
        for i in range(n)
    ]


def test_rows_stand_by_real_success_with_baselines_apart() -> None:
    records = some("weak", 2) + some("strong", 8) + some("strong", 1, source="model") + some("random", 9)
    rows = successes(records, "simulator", {"nothing": wilson(0, 10), "random": wilson(1, 10)})
    assert [(row.policy, row.place, row.kind, row.baseline) for row in rows] == [
        ("strong", "simulator", "real", False),
        ("strong", "judge", "imagined", False),
        ("weak", "simulator", "real", False),
        ("random", "simulator", "baseline", True),
        ("nothing", "simulator", "baseline", True),
    ]
    assert rows[3].all == wilson(9, 10)  # records win over the result's number


def test_differences_are_to_the_best_in_the_same_place_paired_by_start() -> None:
    rows = {row.policy: row for row in successes(some("a", 8) + some("b", 5) + some("replay", 10), "sim", {})}
    assert rows["a"].best
    assert rows["a"].difference is None
    assert rows["b"].difference.value == pytest.approx(-0.3)
    assert rows["b"].difference.n == 10
    assert rows["replay"].difference.value == pytest.approx(0.2)  # a baseline is never the best


def test_a_self_score_is_never_the_best() -> None:
    records = some("a", 5, source="model") + some("b", 4, source="model")
    records += some("cem", 10, source="model", plans_with="judge")
    rows = {row.policy: row for row in successes(records, "sim", {})}
    assert rows["a"].best
    assert rows["cem"].self_score
    assert not rows["cem"].best


def test_demanding_starts_are_counted_apart() -> None:
    records = [replace(r, meta={"demanding": i % 2 == 0}) for i, r in enumerate(some("a", 5))]
    (row,) = successes(records, "sim", {})
    assert row.demanding == wilson(3, 5)
    assert successes(some("a", 5), "sim", {})[0].demanding is None


def test_seconds_per_decision_are_pooled() -> None:
    records = [replace(r, meta={"seconds_per_decision": [0.1 * i, 1.0]}) for i, r in enumerate(some("a", 5))]
    median, high = successes(records, "sim", {})[0].decision
    assert (median.n, high.n) == (20, 20)
    assert median.value == pytest.approx(0.95)


def test_episodes_stand_side_by_side() -> None:
    records = some("a", 1, 2) + some("a", 2, 3, source="model", demanding=True)
    (table,) = episodes(records, "sim")
    assert table.places == ("sim", "judge")
    assert table.totals == (wilson(1, 2), wilson(2, 3))
    assert table.rows[0] == ("s0", 0, True, ((True, 5, 1.0), (True, 5, 1.0)))
    assert table.rows[2] == ("s2", 2, True, (None, (False, 7, 0.0)))


def test_natural_order() -> None:
    assert sorted(["s10", "s2", "s", "2", "10", "a²"], key=natural) == ["2", "10", "a²", "s", "s2", "s10"]
