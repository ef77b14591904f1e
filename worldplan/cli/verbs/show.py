"""``worldplan show CHECKPOINT``: what a checkpoint is and was measured at."""

from __future__ import annotations

import json

from worldplan.cli.arguments import Arguments
from worldplan.errors import UsageError

USAGE = "CHECKPOINT"


def run_plain(arguments: Arguments) -> int:
    """Prints the description of a checkpoint."""
    from worldplan import checkpoint

    if len(arguments.words) != 1:
        raise UsageError("show takes one checkpoint", fix="worldplan show pusht-lewm-small")
    print(json.dumps(checkpoint.describe(arguments.words[0]), indent=2, default=str))
    return 0
