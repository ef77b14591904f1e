"""The claim box says what the records support, and no more."""

from __future__ import annotations

from worldplan.evaluation.claims import claims
from worldplan.evaluation.ranking import rank
from worldplan.types import EvalRecord


def some(policy: str, wins: int, n: int = 10, source: str = "real", **meta: object) -> list[EvalRecord]:
    model = "judge" if source == "model" else None
    return [
        EvalRecord("pusht", policy, i, f"s{i}", source, float(i < wins), i < wins, 5 + i, 0.1, model, meta)  # type: ignore[arg-type]
        for i in range(n)
    ]


def _claims(records: list[EvalRecord]) -> tuple[str, str]:
    found = claims(records, rank(records, resamples=20), "simulator")
    return " ".join(found.supports), " ".join(found.open)


def test_claims_without_real_episodes() -> None:
    supports, left_open = _claims(some("a", 5, source="model") + some("b", 4, source="model"))
    assert "inside the model judge, and nowhere else" in supports
    assert "no policy was run there" in left_open


def test_claims_without_a_model() -> None:
    supports, left_open = _claims(some("a", 5) + some("b", 4))
    where = "on pusht in the simulator, from these 10 starts."
    assert f"Comparing these 2 policies by success {where}" in supports
    assert "model" not in supports + left_open
    assert "A robot" in left_open


def test_claims_with_both_name_the_choice_and_its_cost() -> None:
    real = some("a", 8) + some("b", 5) + some("c", 1)
    imagined = [r for p, k in (("a", 4), ("b", 6), ("c", 0)) for r in some(p, k, source="model")]
    supports, left_open = _claims(real + imagined)
    assert "picks b, which gives up 30 points of success" in supports
    assert "off by -13.3 points" in left_open
    assert "few to judge a model by" in left_open
    tied, _ = _claims(real + [r for p in "abc" for r in some(p, 4, source="model")])
    assert "one of a, b, c at random" in tied


def test_claims_for_one_policy() -> None:
    supports, _ = _claims(some("a", 8) + some("a", 8, source="model"))
    assert "Saying how often this policy succeeds" in supports
    supports, left_open = _claims(some("a", 8, source="model", plans_with="judge"))
    assert "this policy" in supports
    assert "Self-scores" in left_open
