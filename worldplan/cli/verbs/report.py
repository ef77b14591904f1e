"""``worldplan report RUN``: write report.html from the records of a run."""

from __future__ import annotations

from pathlib import Path

from worldplan.cli.arguments import Arguments
from worldplan.errors import DataError, UsageError

USAGE = "RUN"


def run_plain(arguments: Arguments) -> int:
    """Reads saved records and result as data, and writes ``RUN/report.html``."""
    from worldplan.evaluation import records as room
    from worldplan.evaluation import result as results
    from worldplan.evaluation.report import report

    if len(arguments.words) != 1:
        raise UsageError("report takes one run folder", fix="worldplan report runs/rank-...")
    run = Path(arguments.words[0])
    if not (run / "records.jsonl").is_file():
        raise DataError(f"{run} holds no records.jsonl", expected="the out folder of plan, eval or rank")
    result = results.read(run / "result.json") if (run / "result.json").is_file() else None
    out = report(room.read(run / "records.jsonl"), run / "report.html", result=result)
    print(out)
    return 0
