"""Jobs in process and in workers: order, errors with names, death, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from worldplan.compute import Job, run
from worldplan.errors import ConfigError, DataError, WorkerError

JOBS = '''
"""Functions for workers to run; a module of its own, so that workers can import it."""

import os
import sys
import time


class Stubborn(Exception):
    def __init__(self, a, b):
        super().__init__(a)


def square(value, delay=0.0):
    time.sleep(delay)
    return value * value


def fail(kind, text):
    raise kind(text)


def stubborn():
    raise Stubborn("first", "second")


def die(code):
    os._exit(code)


def killed():
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def surroundings():
    masked = "torch" in sys.modules
    return os.getpid(), os.environ.get("OMP_NUM_THREADS"), masked


def threads():
    import torch

    return torch.get_num_threads()


def touch_and_sleep(path, seconds):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(seconds)


def unpicklable():
    return lambda: 0
'''


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> object:
    """The module above, importable here and in workers."""
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "jobs_for_workers.py").write_text(JOBS)
    before = os.environ.get("PYTHONPATH", "")
    sys.path.insert(0, str(folder))  # spawned workers are given this path
    import jobs_for_workers

    yield jobs_for_workers
    sys.path.remove(str(folder))
    assert os.environ.get("PYTHONPATH", "") == before


@pytest.mark.parametrize("workers", [0, 2])
def test_answers_keep_the_order_of_the_jobs(jobs: object, workers: int) -> None:
    seen: list[tuple[int, int]] = []
    listed = [Job(jobs.square, (i,), {"delay": 0.2 if i == 0 else 0.0}, f"job {i}") for i in range(5)]
    assert run(listed, workers, lambda done, total: seen.append((done, total))) == [0, 1, 4, 9, 16]
    assert seen == [(i, 5) for i in range(1, 6)]


@pytest.mark.parametrize("workers", [0, 3])
def test_no_jobs_are_no_answers(workers: int) -> None:
    assert run([], workers) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failure_carries_the_name_and_the_cause(jobs: object, workers: int) -> None:
    listed = [Job(jobs.square, (2,)), Job(jobs.fail, (DataError, "no frames"), name="policy B")]
    with pytest.raises(WorkerError, match="the job 'policy B' failed with DataError: no frames") as caught:
        run(listed, workers)
    assert isinstance(caught.value.__cause__, DataError)
    if workers:
        assert "in fail" in caught.value.__cause__.__notes__[0]


def test_errors_that_do_not_unpickle_and_answers_that_do_not_pickle(jobs: object) -> None:
    with pytest.raises(WorkerError, match="'stubborn' failed with RuntimeError: Stubborn: first"):
        run([Job(jobs.stubborn)], 1)
    with pytest.raises(WorkerError, match="'unpicklable' failed"):
        run([Job(jobs.unpicklable)], 1)


def test_a_dead_worker_is_named(jobs: object) -> None:
    with pytest.raises(WorkerError, match="died while running 'policy C'") as caught:
        run([Job(jobs.die, (7,), name="policy C"), Job(jobs.square, (1,), {"delay": 60})], 2)
    assert "exit code 7" in str(caught.value)
    if os.name != "nt":
        with pytest.raises(WorkerError, match=r"killed by SIGKILL \(out of memory\?\)"):
            run([Job(jobs.killed)], 1)


def test_workers_compute_with_one_thread_and_import_no_torch_by_themselves(jobs: object) -> None:
    before = dict(os.environ)
    pid, omp, has_torch = run([Job(jobs.surroundings)], 1)[0]
    assert pid != os.getpid()
    assert omp == "1"
    assert not has_torch
    assert run([Job(jobs.threads)], 1) == [1]
    assert dict(os.environ) == before


def test_jobs_that_cannot_be_sent_are_refused_before_anything_runs(jobs: object) -> None:
    started: list[int] = []
    with pytest.raises(ConfigError, match="cannot be sent to a worker") as caught:
        run([Job(started.append, (1,)), Job(lambda: 0, name="inline")], 2)
    assert "'inline'" in str(caught.value)
    assert started == []


def test_wrong_use() -> None:
    with pytest.raises(ConfigError, match="Ray"):
        run([], backend="ray")
    with pytest.raises(ConfigError, match="workers=-1"):
        run([], -1)
    with pytest.raises(ConfigError, match="'slurm'"):
        run([], backend="slurm")  # type: ignore[arg-type]


@pytest.mark.skipif(os.name == "nt", reason="signals of a process group")
def test_ctrl_c_ends_workers_quietly(tmp_path: Path) -> None:
    (tmp_path / "jobs_for_workers.py").write_text(JOBS)
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            import jobs_for_workers
            from worldplan.compute import Job, run

            if __name__ == "__main__":
                listed = [Job(jobs_for_workers.touch_and_sleep, (path, 60)) for path in sys.argv[1:]]
                try:
                    run(listed, workers=2)
                except KeyboardInterrupt:
                    sys.exit(130)
            """
        )
    )
    marks = [tmp_path / "a", tmp_path / "b"]
    process = subprocess.Popen(
        [sys.executable, script, *map(str, marks)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _wait_for(lambda: all(mark.exists() and mark.read_text() for mark in marks))
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everybody
        _, printed = process.communicate(timeout=20)
    finally:
        process.kill()
    assert time.monotonic() - began < 10
    assert process.returncode == 130
    assert printed == ""
    for mark in marks:
        with pytest.raises(ProcessLookupError):
            os.kill(int(mark.read_text()), 0)


@pytest.mark.skipif(os.name == "nt", reason="prints of another start method")
def test_a_script_without_a_guard_is_told_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "jobs_for_workers.py").write_text(JOBS)
    script = tmp_path / "script.py"
    script.write_text(
        "import jobs_for_workers\nfrom worldplan.compute import Job, run\n"
        "run([Job(jobs_for_workers.square, (2,))], workers=1)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert '__name__ == "__main__"' in done.stderr.splitlines()[-1]


def _wait_for(condition: object, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
