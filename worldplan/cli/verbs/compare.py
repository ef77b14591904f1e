"""``worldplan compare A B RUN``: two policies of a run, start by start."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from worldplan.cli.arguments import Arguments
from worldplan.errors import DataError, UsageError, suggest

USAGE = "A B RUN"


def run_plain(arguments: Arguments) -> int:
    """Paired exact test of B against A on shared starts; 0 where B is better at 5 %, else 3."""
    from worldplan.evaluation import estimates
    from worldplan.evaluation import records as room

    if len(arguments.words) != 3:
        raise UsageError(
            "compare takes two policies and a run folder", fix="worldplan compare A B runs/rank-..."
        )
    first, second, folder = arguments.words
    path = Path(folder) / "records.jsonl"
    records = [record for record in room.read(path) if record.source == "real" and record.success is not None]
    by_policy = {
        name: {r.start: bool(r.success) for r in records if r.policy == name}
        for name in {r.policy for r in records}
    }
    for name in (first, second):
        if name not in by_policy:
            raise DataError(f"{path} has no real episodes of {name!r}", fix=suggest(name, by_policy))
    shared = sorted(by_policy[first].keys() & by_policy[second].keys())
    if not shared:
        raise DataError(f"{first} and {second} share no start")
    a = [by_policy[first][start] for start in shared]
    b = [by_policy[second][start] for start in shared]
    difference, test = estimates.paired_difference(b, a), estimates.mcnemar(b, a)
    better = (difference.value or 0) > 0 and test.value is not None and test.value < 0.05
    if arguments.json:
        print(json.dumps({"difference": asdict(difference), "p": asdict(test), "promoted": better}))
    else:
        interval = f"[{difference.low}, {difference.high}]"
        print(f"{second} minus {first}: {difference.value} {interval}, n={difference.n}")
        print(f"p = {test.value} ({test.method}); {'promoted' if better else 'not promoted'}")
    return 0 if better else 3
