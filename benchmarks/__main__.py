"""Runs the benchmarks, each in a process of its own, and writes the table of results.

    python -m benchmarks [--only windows,planning] [--quick] [--threads 1] [--out benchmarks/results]
    python -m benchmarks --table                    # the table again, from the JSON files

Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import table

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("windows", "envs", "training", "planning")
THREADED = ("training", "planning")  # the others measure one thread on purpose


def run(name: str, out: Path, quick: bool, threads: int) -> int:
    """Runs one benchmark; threads are fixed before its process starts. Returns its exit status."""
    (out / f"{name}.json").unlink(missing_ok=True)  # a failure must not leave an older result in the table
    command = [sys.executable, "-m", f"benchmarks.{name}", "--out", str(out / f"{name}.json")]
    command += ["--quick"] if quick else []
    command += ["--threads", str(threads)] if name in THREADED else []
    count = str(threads if name in THREADED else 1)
    environment = {**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
    begun = time.perf_counter()
    status = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
    print(f"{name}: {'done' if not status.returncode else 'failed'}, {time.perf_counter() - begun:.0f} s")
    return status.returncode


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is asked for; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(NAMES), help="names, separated by commas")
    parser.add_argument("--quick", action="store_true", help="smoke sizes: shows that it runs, no more")
    parser.add_argument("--threads", type=int, default=1, help="of training and planning")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder")
    parser.add_argument("--table", action="store_true", help="measure nothing, make the table again")
    arguments = parser.parse_args(argv)
    chosen = [name.strip() for name in arguments.only.split(",") if name.strip()]
    if unknown := set(chosen) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    out = arguments.out.resolve()
    failed = 0
    if not arguments.table:
        out.mkdir(parents=True, exist_ok=True)
        statuses = [run(name, out, arguments.quick, arguments.threads) for name in chosen]
        failed = sum(status != 0 for status in statuses)
    written = table.write(out)
    print(written.read_text(encoding="utf-8"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
