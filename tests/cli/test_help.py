"""What the command says about itself."""

from __future__ import annotations

import re
from pathlib import Path

from worldplan.envs import doctor, pusht

ROOT = Path(__file__).parents[2]


def test_hints_install_the_simulator_that_the_tests_run_with():
    pinned = next(
        line
        for line in (ROOT / "requirements" / "no-deps.txt").read_text().splitlines()
        if line.startswith("gym-pusht")
    )
    assert pinned in (ROOT / "pyproject.toml").read_text()
    for hint in (pusht._INSTALL, doctor._PUSHT):
        assert re.findall(r"gym-pusht[=<>]=[\d.]+", hint) == [pinned]
