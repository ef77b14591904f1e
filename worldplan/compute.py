"""A list of jobs, run one after the other here or side by side in worker processes.

A job is a function with its arguments. The answers come back in the order of the jobs. Workers are
fresh processes (``spawn``): they inherit no locks and no open files, compute with one torch thread
each, and never see Ctrl-C themselves; whoever started them ends them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from worldplan.errors import ConfigError, WorkerError

Progress = Callable[[int, int], None]
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
_GRACE_SECONDS = 2.0


@dataclass(frozen=True)
class Job:
    """A call to be made.

    Attributes:
        function: called with `args` and `kwargs`; for workers, defined at the top of a module.
        args: positional arguments; picklable, for workers.
        kwargs: keyword arguments; picklable, for workers.
        name: what messages call it; empty takes the function's.
    """

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def label(self) -> str:
        """The name, or that of the function."""
        return self.name or str(getattr(self.function, "__qualname__", self.function))

    def __call__(self) -> Any:
        """Makes the call."""
        return self.function(*self.args, **self.kwargs)


def run(
    jobs: Sequence[Job],
    workers: int = 0,
    progress: Progress | None = None,
    backend: Literal["local", "ray"] = "local",
) -> list[Any]:
    """Runs jobs and returns their answers in the order of the jobs.

    The first job that fails ends the run: the others are stopped and their answers are lost.

    Args:
        jobs: independent of each other.
        workers: processes to run them in; 0 runs them here.
        progress: called with the number of finished jobs and of all.
        backend: ``"local"`` is the only one so far.

    Raises:
        ConfigError: the backend is unknown, `workers` is negative, or a job cannot be sent to a worker.
        WorkerError: a job raised, or its worker died; names the job. The cause is the job's own error.
    """
    if backend == "ray":
        raise ConfigError(
            "jobs cannot run on Ray yet",
            expected='backend="local"',
            found='backend="ray"',
            fix=f"workers={os.cpu_count() or 1} uses this machine",
        )
    if backend != "local" or workers < 0:
        raise ConfigError(
            "these jobs cannot be run",
            expected='backend="local" and workers of 0 or more',
            found=f"backend={backend!r}, workers={workers}",
        )
    if workers:
        return _run_beside(jobs, min(workers, len(jobs)), progress)
    answers = []
    for job in jobs:
        try:
            answers.append(job())
        except Exception as error:
            raise _failure(job, error) from error
        if progress:
            progress(len(answers), len(jobs))
    return answers


@dataclass
class _Worker:
    """A process, our end of its pipe, and the index of the job it is busy with."""

    process: multiprocessing.process.BaseProcess
    pipe: Connection
    job: int | None = None


def _run_beside(jobs: Sequence[Job], count: int, progress: Progress | None) -> list[Any]:
    calls = [_packed(job) for job in jobs]
    answers: dict[int, Any] = {}
    waiting = iter(range(len(jobs)))
    workers: list[_Worker] = []
    try:
        for _ in range(count):
            workers.append(_start())
            _give(workers[-1], calls, waiting)
        while len(answers) < len(jobs):
            for worker in _ready(workers):
                assert worker.job is not None, "an idle worker answered"
                answers[worker.job] = _answer(worker, jobs[worker.job])
                if progress:
                    progress(len(answers), len(jobs))
                _give(worker, calls, waiting)
    finally:
        _end(workers)
    return [answers[index] for index in range(len(jobs))]


def _packed(job: Job) -> bytes:
    try:
        return pickle.dumps(job)
    # pickling calls code of the objects, which may raise anything
    except Exception as error:
        raise ConfigError(
            f"the job {job.label!r} cannot be sent to a worker process",
            expected="a function defined at the top of a module, with arguments that pickle",
            found=f"{type(error).__name__}: {error}",
            fix="workers=0",
        ) from error


def _start() -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), name="worldplan-worker")
    with _inherited():
        process.start()
    theirs.close()  # so that the pipe breaks when the worker dies
    return _Worker(process, ours)


@contextlib.contextmanager
def _inherited() -> Iterator[None]:
    """Sets what a process inherits at its birth: deaf to Ctrl-C, and one thread for torch."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    has_masks = hasattr(signal, "pthread_sigmask")
    if has_masks:
        resource_tracker.ensure_running()  # its own start would lift the mask again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if has_masks else set()
    os.environ.update(_ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        if has_masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _give(worker: _Worker, calls: Sequence[bytes], waiting: Iterator[int]) -> None:
    worker.job = next(waiting, None)
    if worker.job is not None:
        # a worker that died in the meantime is found out when its answer is read
        with contextlib.suppress(OSError):
            worker.pipe.send_bytes(calls[worker.job])


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    """Waits until busy workers have answered or died, and returns them."""
    busy = [worker for worker in workers if worker.job is not None]
    signs = set(wait([sign for worker in busy for sign in (worker.pipe, worker.process.sentinel)]))
    return [worker for worker in busy if not signs.isdisjoint((worker.pipe, worker.process.sentinel))]


def _answer(worker: _Worker, job: Job) -> Any:
    try:
        if not worker.pipe.poll():  # dead, while a child of its own holds the pipe open
            raise EOFError
        done, value, text = pickle.loads(worker.pipe.recv_bytes())
    except (EOFError, OSError) as error:
        worker.process.join(_GRACE_SECONDS)
        raise WorkerError(
            f"the worker process died while running {job.label!r}",
            expected="an answer",
            found=f"exit code {worker.process.exitcode}" + _meaning(worker.process.exitcode),
            fix='keep the call that starts workers under if __name__ == "__main__":, or try workers=0',
        ) from error
    if done:
        return value
    value.add_note(f"in a worker process:\n{text}")
    raise _failure(job, value) from value


def _meaning(code: int | None) -> str:
    if code is None or code >= 0:
        return ""
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
        return f", killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return ""


def _failure(job: Job, error: BaseException) -> WorkerError:
    return WorkerError(f"the job {job.label!r} failed with {type(error).__name__}: {error}")


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.pipe.close()  # an idle worker leaves by itself
        if worker.job is not None:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(_GRACE_SECONDS)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _serve(pipe: Connection) -> None:
    """The life of a worker: takes calls and answers until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where there are no masks to inherit
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(_worked(pipe.recv_bytes()))


def _worked(call: bytes) -> bytes:
    """Makes a call and packs ``(done, answer or error, text of the error)``."""
    try:
        job = pickle.loads(call)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        return pickle.dumps((True, job(), ""))
    # the process must outlive whatever the job raises, to say so
    except Exception as error:
        text = traceback.format_exc()
        try:
            packed = pickle.dumps((False, error, text))
            pickle.loads(packed)  # some errors pickle and do not unpickle
            return packed
        except Exception:
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}"), text))
