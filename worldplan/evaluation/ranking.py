"""Ranking: policies ordered by their scores in imagination, beside their scores in reality.

A score that a planner earns inside the very weights it plans with says little: the search exploits
the model's errors, and the model then confirms them. Such self-scores are listed, marked, given no
rank and kept out of every agreement number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from worldplan.errors import ConfigError, UsageError
from worldplan.evaluation.agreement import Side, Ties
from worldplan.evaluation.estimates import CONFIDENCE, bootstrap, rate
from worldplan.evaluation.resampling import Outcomes, agree
from worldplan.types import Array, Estimate, EvalRecord

Score = Literal["success", "return"]
# a policy and the model it was imagined in, or None for reality
Key = tuple[str, str | None]
# a rank and whether it is shared
Place = tuple[int | None, bool]
_UNRANKED: Place = (None, False)
# a change of Pearson's r by one policy that is worth a warning
_LEVERAGE = 0.10


@dataclass(frozen=True)
class Row:
    """One policy under one judge.

    Attributes:
        policy: its name.
        model: id of the world model that judges, or None without imagined episodes.
        imagined: score in the model, or None.
        real: score in reality (a simulator counts as reality), or None.
        imagined_rank: 1 is best; ties share the better rank; None for self-scores.
        real_rank: the same among all policies with real episodes.
        imagined_tied: whether another policy shares the imagined rank; they are listed by name.
        real_tied: whether another policy shares the real rank.
        self_score: whether the policy plans with the weights that judge it.
    """

    policy: str
    model: str | None
    imagined: Estimate | None
    real: Estimate | None
    imagined_rank: int | None
    real_rank: int | None
    imagined_tied: bool
    real_tied: bool
    self_score: bool


@dataclass(frozen=True)
class Ranking:
    """What `rank` found.

    Attributes:
        task: name of the task.
        score: ``"success"`` or ``"return"``.
        model: the judge of most policies, whose `agreement` is given; None without imagined episodes.
        rows: best first; the judge's rows before those of other models.
        agreement: name -> Estimate, empty unless two policies or more have both kinds of episodes.
        by_model: the same for each judge.
        weight_by: whose gap MMRV weighs by.
        ties: how MMRV treats ties.
        notes: what a reader should know before trusting the numbers.
    """

    task: str
    score: Score
    model: str | None
    rows: tuple[Row, ...]
    agreement: Mapping[str, Estimate]
    by_model: Mapping[str, Mapping[str, Estimate]]
    weight_by: Side
    ties: Ties
    notes: tuple[str, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as plain values, for ``result.json``."""
        return [asdict(row) for row in self.rows]


def rank(
    records: Iterable[EvalRecord],
    *,
    score: Score = "success",
    weight_by: Side = "real",
    ties: Ties = "simpler",
    seed: int = 0,
    resamples: int = 1000,
    confidence: float = CONFIDENCE,
) -> Ranking:
    """Orders policies and measures how well imagination orders them.

    A record whose ``meta["plans_with"]`` names its own model (or lists it) is a self-score.

    Args:
        records: episodes of one task, from one model or several, from reality, or both.
        score: success, with Wilson intervals, or return, with bootstrap intervals.
        weight_by: see `agreement.mmrv`.
        ties: see `agreement.mmrv`.
        seed: of the bootstraps, the only thing random here.
        resamples: bootstrap resamples.
        confidence: share of the intervals.

    Raises:
        UsageError: no records, or several tasks.
    """
    if score not in ("success", "return"):
        raise ConfigError("unknown score", expected="success or return", found=repr(score))
    known = list(records)
    task = only_task(known)
    groups: dict[Key, list[EvalRecord]] = {}
    for record in known:
        judge_of = record.model if record.source == "model" else None
        groups.setdefault((record.policy, judge_of), []).append(record)
    values = {key: _estimate(group, score, seed, resamples, confidence) for key, group in groups.items()}
    own = {key for key, group in groups.items() if any(plans_with_judge(record) for record in group)}
    by_model: dict[str, dict[str, Estimate]] = {}
    models = sorted({model for _, model in groups if model is not None})
    for model in models:
        shared = [p for p, m in groups if m == model and (p, m) not in own and (p, None) in groups]
        shared = [p for p in sorted(shared) if values[p, model].n and values[p, None].n]
        if len(shared) > 1:
            outcomes = _outcomes(groups, shared, model, score)
            by_model[model] = agree(
                outcomes,
                weight_by=weight_by,
                ties=ties,
                seed=seed,
                resamples=resamples,
                confidence=confidence,
            )
    # the judge is the model with most policies to judge; names settle a draw
    judged = Counter(model for policy, model in groups if model and (policy, model) not in own)
    judge = min(models, key=lambda model: (-judged[model], model), default=None)
    agreement = by_model.get(judge, {}) if judge else {}
    notes = _notes(known, groups, own, judge, score) + _doubts(agreement)
    rows = _rows(values, own, judge)
    return Ranking(task, score, judge, rows, agreement, by_model, weight_by, ties, tuple(notes))


def only_task(records: Sequence[EvalRecord]) -> str:
    """The task all records share; a record without a task (a user's table) belongs to any.

    Raises:
        UsageError: there are no records, or several tasks.
    """
    if not records:
        raise UsageError("there are no records", expected="at least one evaluated episode")
    tasks = sorted({record.task for record in records} - {""})
    if len(tasks) > 1:
        raise UsageError(
            "the records mix tasks",
            expected="records of one task",
            found=", ".join(tasks),
            fix=f'rank([r for r in records if r.task == "{tasks[0]}"])',
        )
    return tasks[0] if tasks else ""


def plans_with_judge(record: EvalRecord) -> bool:
    """Whether the record is a self-score: imagined by weights its policy plans with."""
    weights = record.meta.get("plans_with")
    used = weights if isinstance(weights, list | tuple) else [weights]
    return record.source == "model" and record.model in used


def _estimate(
    group: Sequence[EvalRecord], score: Score, seed: int, resamples: int, confidence: float
) -> Estimate:
    if score == "success":
        return rate((record.success for record in group), confidence)
    returns = [record.ret for record in group]
    return bootstrap(returns, seed=seed, resamples=resamples, confidence=confidence)


def _outcomes(
    groups: Mapping[Key, Sequence[EvalRecord]],
    policies: Sequence[str],
    model: str,
    score: Score,
) -> Outcomes:
    sides = [[groups[policy, side] for policy in policies] for side in (None, model)]
    starts = sorted({record.start for side in sides for group in side for record in group})
    column = {start: index for index, start in enumerate(starts)}
    arrays: list[Array] = []
    for side in sides:
        total, count = np.zeros((2, len(policies), len(starts)))
        for row, group in enumerate(side):
            for record in group:
                value = record.ret if score == "return" else record.success
                if value is not None:
                    total[row, column[record.start]] += value
                    count[row, column[record.start]] += 1
        arrays += [total, count]
    return Outcomes(*arrays)


def _rows(values: Mapping[Key, Estimate], own: set[Key], judge: str | None) -> tuple[Row, ...]:
    real = {policy: value for (policy, model), value in values.items() if model is None}
    real_ranks = _ranks(real)
    models = sorted({model for _, model in values if model}, key=lambda model: (model != judge, model))
    rows: list[Row] = []
    for model in models:
        here = {policy: value for (policy, m), value in values.items() if m == model}
        ranks = _ranks({policy: value for policy, value in here.items() if (policy, model) not in own})
        for policy in sorted(here, key=lambda policy: (_descending(here[policy]), policy)):
            place, real_place = ranks.get(policy, _UNRANKED), real_ranks.get(policy, _UNRANKED)
            mine = (policy, model) in own
            rows.append(Row(policy, model, here[policy], real.get(policy), *_fields(place, real_place), mine))
    judged = {row.policy for row in rows if row.model == judge}
    for policy in sorted(real.keys() - judged, key=lambda policy: (_descending(real[policy]), policy)):
        place = real_ranks.get(policy, _UNRANKED)
        rows.append(Row(policy, None, None, real[policy], *_fields(_UNRANKED, place), False))
    return tuple(rows)


def _fields(imagined: Place, real: Place) -> tuple[int | None, int | None, bool, bool]:
    return imagined[0], real[0], imagined[1], real[1]


def _ranks(values: Mapping[str, Estimate]) -> dict[str, Place]:
    scores = {policy: value.value for policy, value in values.items() if value.value is not None}
    every = list(scores.values())
    return {
        policy: (1 + sum(other > score for other in every), every.count(score) > 1)
        for policy, score in scores.items()
    }


def _descending(value: Estimate) -> float:
    return float("inf") if value.value is None else -value.value


def _notes(
    records: Sequence[EvalRecord],
    groups: Mapping[Key, Sequence[EvalRecord]],
    own: set[Key],
    judge: str | None,
    score: Score,
) -> list[str]:
    notes = []
    if unknown := sum(record.success is None for record in records):
        notes.append(f"{unknown} episodes do not say whether they succeeded; success rates leave them out.")
    if solved := sum(record.meta.get("solved_at_start") is True for record in records):
        notes.append(f"{solved} episodes began where the goal was already reached.")
    repeated = sum(len(group) - len({record.start for record in group}) for group in groups.values())
    if repeated:
        notes.append(f"{repeated} episodes repeat a start of their policy: n counts them, but they add less.")
    starts = {key: frozenset(record.start for record in group) for key, group in groups.items()}
    if len(set(starts.values())) > 1:
        notes.append("Not all policies were run from the same starts; their scores differ by that as well.")
    for policy, model in sorted(own, key=str):
        notes.append(f"{policy} plans with {model}: its score there is a self-score, with no rank.")
    if judge and not any(model is None for _, model in groups):
        notes.append("There are no real episodes: nothing says how far imagination can be trusted here.")
    if len({policy for policy, _ in groups}) == 1:
        notes.append("There is one policy: nothing to rank.")
    if score == "success" and judge:
        judged = [group for (_, model), group in groups.items() if model == judge]
        if len(judged) > 1 and len({rate(record.success for record in group).value for group in judged}) == 1:
            notes.append(f"All policies score the same in {judge}: it does not tell them apart.")
    return notes


def _doubts(agreement: Mapping[str, Estimate]) -> list[str]:
    if not agreement:
        return []
    r, without = agreement["pearson"], agreement["pearson_leave_one_out"]
    notes = [f"Agreement rests on {r.n} policies; its intervals cover the choice of starts, not of policies."]
    if r.value is None:
        notes.append("Correlations are undefined: all policies score the same on one side.")
    elif without.low is not None and without.high is not None:
        change = max(r.value - without.low, without.high - r.value)
        if change > _LEVERAGE:
            notes.append(f"One policy carries Pearson's r: without it r changes by {change:.2f}.")
    return notes
