"""What the tables of a report hold, computed from records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from worldplan.evaluation.estimates import paired_difference, quantile, rate
from worldplan.evaluation.figures import Kind
from worldplan.evaluation.ranking import plans_with_judge
from worldplan.types import Estimate, EvalRecord

# references that belong beside a result rather than among what is compared
BASELINES = ("nothing", "random", "replay", "no_planning", "true_dynamics")


@dataclass(frozen=True)
class Success:
    """One policy in one place.

    Attributes:
        policy: its name.
        place: where it ran: the name of reality, or of the model.
        kind: how it is drawn.
        baseline: a reference beside the result, not one of the policies compared.
        all: success from all starts.
        demanding: success from the starts that ask for more than standing still; None if no record
            says which those are.
        difference: success minus that of the best policy in the same place, paired by start; None for
            the best itself, and without shared starts.
        best: whether it is the best in its place.
        decision: p50 and p95 of the seconds a decision took, or None.
        self_score: whether it plans with the weights that judge it.
    """

    policy: str
    place: str
    kind: Kind
    baseline: bool
    all: Estimate
    demanding: Estimate | None = None
    difference: Estimate | None = None
    best: bool = False
    decision: tuple[Estimate, Estimate] | None = None
    self_score: bool = False


@dataclass(frozen=True)
class Episodes:
    """The episodes of one policy, one row per start and seed.

    Attributes:
        policy: its name.
        places: columns: the name of reality, and of each model.
        totals: ``k/n`` of each column.
        rows: start, seed, demanding (or None), and one cell for each column: success (or None where it
            is unknown), length and return; or None where the start was not run there.
    """

    policy: str
    places: tuple[str, ...]
    totals: tuple[Estimate, ...]
    rows: tuple[tuple[str, int, bool | None, tuple[tuple[bool | None, int, float] | None, ...]], ...]


def successes(
    records: Sequence[EvalRecord], real_name: str, baselines: Mapping[str, Estimate]
) -> list[Success]:
    """Rows of the success table: policies by their best score, then baselines.

    Args:
        records: of one task.
        real_name: what reality is called.
        baselines: success of references that the records do not hold.
    """
    groups: dict[tuple[str, str], list[EvalRecord]] = {}
    for record in records:
        groups.setdefault((place(record, real_name), record.policy), []).append(record)
    best: dict[str, str] = {}
    for where in {where for where, _ in groups}:
        known = {
            policy: value.value
            for (w, policy), group in groups.items()
            if w == where and not _baseline(group) and not any(plans_with_judge(record) for record in group)
            if (value := rate(record.success for record in group)).value is not None
        }
        if len(known) > 1:
            best[where] = min(known, key=lambda policy: (-known[policy], policy))
    rows = [
        _row(group, where, groups.get((where, best.get(where, "")))) for (where, _), group in groups.items()
    ]
    absent = [name for name in baselines if (real_name, name) not in groups]
    rows += [Success(name, real_name, "baseline", True, baselines[name]) for name in absent]
    top = {row.policy: -1.0 for row in rows}
    for row in rows:
        # policies stand by what really happened, where that is known
        if row.all.value is not None and (row.place == real_name or (real_name, row.policy) not in groups):
            top[row.policy] = max(top[row.policy], row.all.value)
    calm = {row.policy for row in rows if row.baseline}
    order = [real_name, *sorted({row.place for row in rows} - {real_name})]
    return sorted(
        rows, key=lambda row: (row.policy in calm, -top[row.policy], row.policy, order.index(row.place))
    )


def episodes(records: Sequence[EvalRecord], real_name: str) -> list[Episodes]:
    """One table of episodes per policy."""
    found = []
    for policy in sorted({record.policy for record in records}):
        mine = [record for record in records if record.policy == policy]
        places = sorted({place(r, real_name) for r in mine}, key=lambda name: (name != real_name, name))
        lines: dict[tuple[str, int], dict[str, EvalRecord]] = {}
        for record in mine:
            lines.setdefault((record.start, record.seed), {})[place(record, real_name)] = record
        rows = []
        for (start, seed), cells in sorted(lines.items(), key=lambda item: (natural(item[0][0]), item[0][1])):
            known = [r.meta["demanding"] for r in cells.values() if "demanding" in r.meta]
            shown = [cells.get(name) for name in places]
            values = tuple(None if r is None else (r.success, r.length, r.ret) for r in shown)
            rows.append((start, seed, bool(known[0]) if known else None, values))
        totals = tuple(rate(r.success for r in mine if place(r, real_name) == name) for name in places)
        found.append(Episodes(policy, tuple(places), totals, tuple(rows)))
    return found


def place(record: EvalRecord, real_name: str) -> str:
    """Where an episode ran: the name of reality, or of the model."""
    return real_name if record.source == "real" else str(record.model)


def natural(text: str) -> list[tuple[int, int, str]]:
    """Sorts ``s10`` after ``s2``."""
    parts = [part for part in re.split(r"([0-9]+)", text) if part]
    # numbers compare by their length, then digit by digit: no limit on their size
    digits = [part.lstrip("0") if part[0] in "0123456789" else None for part in parts]
    return [
        (1, 0, part) if number is None else (0, len(number), number)
        for part, number in zip(parts, digits, strict=True)
    ]


def _row(group: Sequence[EvalRecord], where: str, best: Sequence[EvalRecord] | None) -> Success:
    policy = group[0].policy
    marked = [record for record in group if "demanding" in record.meta]
    baseline = _baseline(group)
    kind: Kind = "imagined" if group[0].source == "model" else "baseline" if baseline else "real"
    difference = None
    if best is not None and best[0].policy != policy:
        difference = _difference(group, best)
    return Success(
        policy,
        where,
        kind,
        baseline,
        rate(record.success for record in group),
        rate(record.success for record in marked if record.meta["demanding"]) if marked else None,
        difference,
        best is not None and best[0].policy == policy,
        _decision(group),
        any(plans_with_judge(record) for record in group),
    )


def _baseline(group: Sequence[EvalRecord]) -> bool:
    return group[0].policy in BASELINES or any(record.meta.get("baseline") for record in group)


def _difference(group: Iterable[EvalRecord], best: Iterable[EvalRecord]) -> Estimate | None:
    sides = []
    for records in (group, best):
        outcomes: dict[str, list[float]] = {}
        for record in records:
            if record.success is not None:
                outcomes.setdefault(record.start, []).append(float(record.success))
        sides.append({start: float(np.mean(values)) for start, values in outcomes.items()})
    shared = sorted(sides[0].keys() & sides[1].keys())
    if len(shared) < 2:
        return None
    return paired_difference([sides[0][start] for start in shared], [sides[1][start] for start in shared])


def _decision(group: Sequence[EvalRecord]) -> tuple[Estimate, Estimate] | None:
    seconds = [value for record in group for value in record.meta.get("seconds_per_decision") or ()]
    return (quantile(seconds, 0.5), quantile(seconds, 0.95)) if seconds else None
