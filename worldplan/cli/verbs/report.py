"""``worldplan report RUN``: write report.html from the records of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from worldplan.cli.arguments import Arguments
from worldplan.cli.measure import CLIPS, VALIDITY
from worldplan.errors import DataError, UsageError

if TYPE_CHECKING:
    from worldplan.evaluation.validity import Validity

USAGE = "RUN"


def run_plain(arguments: Arguments) -> int:
    """Reads saved records, result, validity and clips as data, and writes ``RUN/report.html``."""
    from worldplan.evaluation import records as room
    from worldplan.evaluation import result as results
    from worldplan.evaluation import videos
    from worldplan.evaluation.report import report

    if len(arguments.words) != 1:
        raise UsageError("report takes one run folder", fix="worldplan report runs/rank-...")
    run = Path(arguments.words[0])
    if not (run / "records.jsonl").is_file():
        raise DataError(f"{run} holds no records.jsonl", expected="the out folder of plan, eval or rank")
    result = results.read(run / "result.json") if (run / "result.json").is_file() else None
    out = report(
        room.read(run / "records.jsonl"),
        run / "report.html",
        result=result,
        validity=_validity(run / VALIDITY),
        videos=videos.load(run / CLIPS) if (run / CLIPS).is_dir() else (),
    )
    print(out)
    return 0


def _validity(path: Path) -> Validity | None:
    from worldplan.evaluation import files
    from worldplan.evaluation.validity import Validity

    if not path.is_file():
        return None
    try:
        return Validity.from_json(json.loads(files.read_text(path)))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path} cannot be read",
            expected="JSON",
            found=f"line {error.lineno}: {error.msg}",
            fix="delete it, and the report does without",
        ) from error
