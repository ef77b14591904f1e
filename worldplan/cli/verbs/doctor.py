"""``worldplan doctor``: what works on this machine, and what to install."""

from __future__ import annotations

import json
from dataclasses import asdict

from worldplan.cli.arguments import Arguments


def run_plain(arguments: Arguments) -> int:
    """Prints the findings; exit code 3 where something needed is missing."""
    from worldplan.envs import doctor

    findings = list(doctor.examine())
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            print(finding)
    return 3 if any(finding.is_needed and not finding.is_fine for finding in findings) else 0
