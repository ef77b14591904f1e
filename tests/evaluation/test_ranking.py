"""Ranking on outcomes whose answers are known by hand."""

from __future__ import annotations

import pytest

from worldplan.errors import ConfigError, UsageError
from worldplan.evaluation import agreement
from worldplan.evaluation.ranking import rank
from worldplan.types import EvalRecord


def records(
    rates: dict[str, float], source: str, n: int = 10, model: str = "m", **meta: object
) -> list[EvalRecord]:
    return [
        EvalRecord(
            "pusht",
            policy,
            index,
            f"s{index}",
            source,  # type: ignore[arg-type]
            float(index < rate * n),
            index < rate * n,
            5,
            0.1,
            model if source == "model" else None,
            meta,
        )
        for policy, rate in rates.items()
        for index in range(n)
    ]


REAL = {"a": 0.9, "b": 0.7, "c": 0.6, "d": 0.3, "e": 0.1}
IMAGINED = {"a": 0.7, "b": 0.8, "c": 0.4, "d": 0.4, "e": 0.0}


def test_rows_are_ordered_with_ties_explicit() -> None:
    found = rank(records(REAL, "real") + records(IMAGINED, "model"), resamples=20)
    assert [row.policy for row in found.rows] == ["b", "a", "c", "d", "e"]
    assert [row.imagined_rank for row in found.rows] == [1, 2, 3, 3, 5]
    assert [row.real_rank for row in found.rows] == [2, 1, 3, 4, 5]
    assert [row.imagined_tied for row in found.rows] == [False, False, True, True, False]
    assert not any(row.real_tied for row in found.rows)
    assert found.rows[0].imagined.n == 10
    assert (found.model, found.task) == ("m", "pusht")


def test_agreement_is_that_of_the_means() -> None:
    found = rank(records(REAL, "real") + records(IMAGINED, "model"), resamples=50)
    scores = {"real": list(REAL.values()), "simulated": list(IMAGINED.values())}
    for name in ("pearson", "spearman", "kendall", "mmrv", "pairwise_accuracy", "bias"):
        assert found.agreement[name].value == pytest.approx(getattr(agreement, name)(**scores)), name
    assert found.agreement["regret_at_1"].value == pytest.approx(0.2)
    assert found.agreement["regret_at_3"].value == pytest.approx(0.0)
    assert found.agreement["pearson"].n == 5
    assert found.agreement["pearson"].method == "bootstrap over 10 starts 95%"
    without = agreement.leave_one_out(agreement.pearson, **scores)
    assert found.agreement["pearson_leave_one_out"].low == pytest.approx(min(without))
    both = rank(records(REAL, "real") + records(IMAGINED, "model"), resamples=20, ties="both")
    assert both.agreement["mmrv"].value > found.agreement["mmrv"].value
    assert any("5 policies" in note for note in found.notes)


def test_only_real_records_rank_without_agreement() -> None:
    found = rank(records(REAL | {"f": 0.9}, "real"))
    assert [row.policy for row in found.rows] == ["a", "f", "b", "c", "d", "e"]
    assert [row.real_rank for row in found.rows] == [1, 1, 3, 4, 5, 6]
    assert [row.real_tied for row in found.rows][:3] == [True, True, False]
    assert (found.model, found.agreement) == (None, {})


def test_only_imagined_records_say_so() -> None:
    found = rank(records(IMAGINED, "model"))
    assert found.agreement == {}
    assert all(row.real is None for row in found.rows)
    assert any("no real episodes" in note for note in found.notes)


def test_self_scores_are_listed_and_left_out() -> None:
    """A planner that tops its own model changes nothing about the agreement of the others."""
    imagined = records(IMAGINED, "model", model="judge")
    planner = records({"cem": 1.0}, "model", model="judge", plans_with="judge")
    real = records(REAL | {"cem": 0.0}, "real")
    found = rank(real + imagined + planner, resamples=20)
    without = rank(records(REAL, "real") + imagined, resamples=20)
    cem = next(row for row in found.rows if row.policy == "cem")
    assert cem.self_score
    assert cem.imagined_rank is None
    assert cem.imagined.value == 1.0
    assert found.agreement == without.agreement
    assert found.rows[1].imagined_rank == 1
    assert any("cem plans with judge" in note for note in found.notes)
    listed = rank(real + imagined + records({"cem": 1.0}, "model", model="judge", plans_with=["x", "judge"]))
    assert any(row.self_score for row in listed.rows)


def test_a_second_model_judges_the_planner() -> None:
    own = records({"cem": 1.0}, "model", model="A", plans_with="A")
    other = records(IMAGINED | {"cem": 0.6}, "model", model="B", plans_with="A")
    found = rank(records(REAL | {"cem": 0.5}, "real") + own + other, resamples=20)
    assert found.model == "B"
    assert [row.model for row in found.rows] == ["B"] * 6 + ["A"]
    assert [row.self_score for row in found.rows] == [False] * 6 + [True]
    assert found.agreement["pearson"].n == 6
    assert list(found.by_model) == ["B"]


def test_a_policy_the_judge_has_not_seen_is_listed_last() -> None:
    found = rank(records(REAL | {"z": 1.0}, "real") + records(IMAGINED, "model"), resamples=20)
    assert (found.rows[-1].policy, found.rows[-1].model, found.rows[-1].real_rank) == ("z", None, 1)


def test_constant_scores_give_none() -> None:
    found = rank(records(REAL, "real") + records(dict.fromkeys(REAL, 0.5), "model"), resamples=20)
    assert found.agreement["pearson"].value is None
    assert found.agreement["spearman"].low is None
    assert found.agreement["mmrv"].value is not None
    assert [row.imagined_rank for row in found.rows] == [1] * 5
    assert any("does not tell them apart" in note for note in found.notes)


def test_one_policy_has_no_agreement() -> None:
    found = rank(records({"a": 0.5}, "real") + records({"a": 0.4}, "model"))
    assert found.agreement == {}
    assert any("one policy" in note for note in found.notes)


def test_no_records_and_several_tasks_are_refused() -> None:
    with pytest.raises(UsageError, match="no records"):
        rank([])
    with pytest.raises(UsageError, match="mix tasks"):
        rank([*records(REAL, "real"), EvalRecord("other", "a", 0, "s", "real", 0.0, False, 1, 0.0)])
    with pytest.raises(ConfigError, match="success or return"):
        rank(records(REAL, "real"), score="reward")  # type: ignore[arg-type]


def test_a_users_table_without_a_task_joins_any() -> None:
    table = [EvalRecord("", "a", 0, "s0", "real", 1.0, True, 0, 0.0)]
    assert rank(table + records(REAL, "model")).task == "pusht"


def test_unknown_success_is_counted_and_left_out() -> None:
    unknown = [EvalRecord("pusht", "a", 0, "s0", "real", 1.0, None, 3, 0.0)]
    found = rank(unknown)
    assert (found.rows[0].real.value, found.rows[0].real_rank) == (None, None)
    assert any("1 episodes do not say" in note for note in found.notes)
    assert rank(unknown, score="return").rows[0].real.value == 1.0


def test_starts_that_were_solved_already_are_noted() -> None:
    solved = records({"a": 0.5}, "real", n=4, solved_at_start=True)
    assert any("4 episodes began" in note for note in rank(solved).notes)


def test_repeated_and_different_starts_are_noted() -> None:
    again = records({"a": 0.5}, "real") + records({"a": 0.5}, "real")
    assert any("repeat a start" in note for note in rank(again).notes)
    uneven = records({"a": 0.5}, "real") + records({"b": 0.5}, "real", n=5)
    assert any("same starts" in note for note in rank(uneven).notes)


def test_returns_are_ranked_by_their_mean() -> None:
    found = rank(records(REAL, "real") + records(IMAGINED, "model"), score="return", resamples=50)
    assert found.rows[0].imagined.method == "bootstrap 95%"
    assert found.agreement["mmrv"].value == pytest.approx(
        agreement.mmrv(real=list(REAL.values()), simulated=list(IMAGINED.values()))
    )


def test_ranking_is_a_function_of_its_records_and_seed() -> None:
    some = records(REAL, "real") + records(IMAGINED, "model")
    assert rank(some, resamples=30) == rank(list(reversed(some)), resamples=30)
