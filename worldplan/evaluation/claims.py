"""The claim box of a report: which decision the numbers support, and what they leave open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worldplan.evaluation.ranking import Ranking
from worldplan.types import EvalRecord

# with fewer policies than this, one more can change every agreement number
_FEW = 10


@dataclass(frozen=True)
class Claims:
    """Sentences of the box.

    Attributes:
        supports: what may be decided from this report.
        open: what it does not say.
    """

    supports: tuple[str, ...]
    open: tuple[str, ...]


def claims(records: Sequence[EvalRecord], ranking: Ranking, real_name: str) -> Claims:
    """What the records of one task support.

    Args:
        records: of one task.
        ranking: of the same records.
        real_name: what reality is called.
    """
    policies = len({record.policy for record in records})
    starts = len({record.start for record in records})
    real = any(record.source == "real" for record in records)
    judge = ranking.model
    task = ranking.task or "the task"
    many = f"these {policies} policies" if policies > 1 else "this policy"
    where = f"{task} in the {real_name}, from these {starts} starts"
    supports = []
    if real:
        doing = f"Comparing {many} by success" if policies > 1 else f"Saying how often {many} succeeds"
        supports.append(f"{doing} on {where}.")
    if judge and ranking.agreement:
        supports += _choice(ranking, real_name)
    elif judge:
        supports.append(f"Comparing {many} on {task} inside the model {judge}, and nowhere else.")
    return Claims(tuple(supports), tuple(_open(records, ranking, real, real_name)))


def _choice(ranking: Ranking, real_name: str) -> list[str]:
    regret, policies = ranking.agreement["regret_at_1"], ranking.agreement["pearson"].n
    judged = [row for row in ranking.rows if row.model == ranking.model and row.real and row.imagined_rank]
    if regret.value is None or not judged:
        return []
    # ranks count all policies the model judged; the choice is among those that were run in both places
    first = [row.policy for row in judged if row.imagined_rank == judged[0].imagined_rank]
    unit = "points of success" if ranking.score == "success" else "of return"
    lost = regret.value * (100 if ranking.score == "success" else 1)
    names = first[0] if len(first) == 1 else f"one of {', '.join(first)} at random"
    loss = f"gives up {lost:.3g} {unit}" if lost else "gives up nothing"
    return [
        f"Choosing among {policies} policies by their score in the model {ranking.model}: "
        f"that picks {names}, which {loss} against the best of them in the {real_name}."
    ]


def _open(records: Sequence[EvalRecord], ranking: Ranking, real: bool, real_name: str) -> list[str]:
    judge, found = ranking.model, []
    if judge and not real:
        found.append(f"Whether success in {judge} means success in the {real_name}: no policy was run there.")
    elif judge and not ranking.agreement:
        found.append(f"Whether {judge} orders policies rightly: fewer than two were run in both places.")
    if judge:
        found.append(f"Success rates of the model taken as they are{_off(ranking)}.")
        found.append("How often success is misread from predicted frames, an error in every imagined score.")
    if ranking.agreement and (few := ranking.agreement["pearson"].n) < _FEW:
        found.append(f"Policies unlike the {few} compared here, which are few to judge a model by.")
    if any(row.self_score for row in ranking.rows):
        found.append("Self-scores: what a planner earns inside the weights it plans with counts for nothing.")
    found.append("Other tasks, starts, goals and training seeds: the intervals cover the starts only.")
    if real and "robot" not in real_name:
        found.append(f"A robot: the reference is a {real_name}.")
    return found


def _off(ranking: Ranking) -> str:
    bias = ranking.agreement.get("bias")
    if bias is None or bias.value is None or ranking.score != "success":
        return ""
    return f"; here they are off by {bias.value * 100:+.1f} points on average"
