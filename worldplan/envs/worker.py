"""Processes that own rows of a batch of environments, and the in-process stand-in for them.

Both answer the methods of `Rows` in two halves, `submit` and `result`, so that several workers run at
the same time. A worker is spawned, never forked, and imports the environment alone: no torch, and not
the script that started it. It ignores Ctrl-C, which its parent handles, and ends when its parent does.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, Protocol

from worldplan.envs.rows import Factory, Rows
from worldplan.errors import UsageError, WorkerError, WorldplanError

_PATIENCE_SECONDS = 5.0


class Crew(Protocol):
    """Answers the methods of `Rows`."""

    def submit(self, method: str, *args: Any) -> None:
        """Starts a method."""
        ...

    def result(self) -> Any:
        """Waits for what the method returns; raises what it raised."""
        ...

    def close(self) -> None:
        """Ends whatever runs."""
        ...


class Here:
    """Rows in this process; a method is run when it is submitted."""

    def __init__(self, factory: Factory, count: int) -> None:
        self._rows, self._answer = Rows(factory, count), None

    def submit(self, method: str, *args: Any) -> None:
        """Runs a method."""
        self._answer = getattr(self._rows, method)(*args)

    def result(self) -> Any:
        """What the method returned."""
        answer, self._answer = self._answer, None
        return answer

    def close(self) -> None:
        """Closes the environments."""
        self._rows.close()


class Worker:
    """Rows in a process of their own.

    Args:
        factory: picklable; makes one environment in the worker.
        count: rows of the worker.
        name: for error messages, e.g. ``"worker 1 of 2 (rows 3..5)"``.

    Raises:
        UsageError: the factory cannot be sent to another process.
    """

    def __init__(self, factory: Factory, count: int, name: str) -> None:
        self._name, self._busy = name, False
        try:
            pickled = pickle.dumps(factory)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                "the environment's factory cannot be sent to a worker process",
                expected="a function or class at the top level of an importable module",
                found=f"{factory!r}: {error}",
                fix="move it into a module, or workers=0",
            ) from error
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, factory, count), daemon=True, name=f"worldplan {name}"
        )
        with _without_main(keep=b"__main__" in pickled):
            self._process.start()
        theirs.close()

    def submit(self, method: str, *args: Any) -> None:
        """Sends a method to the worker."""
        try:
            self._connection.send((method, args))
        except OSError as error:
            raise self._dead() from error
        self._busy = True

    def result(self) -> Any:
        """Waits for the worker's answer.

        Raises:
            WorkerError: the environment failed, or the worker is dead.
        """
        try:
            kind, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._dead() from error
        self._busy = False
        if kind == "refused":
            raise answer
        if kind == "failed":
            raise WorkerError(f"{self._name} failed", found=answer)
        return answer

    def close(self) -> None:
        """Ends the process: kindly when it is idle, at once when it is not."""
        if self._process.is_alive() and not self._busy:
            try:
                self._connection.send(None)
            except OSError:
                pass  # it ended by itself meanwhile
            self._process.join(_PATIENCE_SECONDS)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._connection.close()

    def _dead(self) -> WorkerError:
        self._process.join(_PATIENCE_SECONDS)
        code = self._process.exitcode
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return WorkerError(
            f"{self._name} died (process {self._process.pid})",
            expected="a worker that answers until it is closed",
            found=how,
            fix="see its own message above; workers=0 shows errors in place, SIGKILL often means no memory",
        )


def serve(connection: Connection, factory: Factory, count: int) -> None:
    """Answers method calls until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows: Rows | None = None
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            break
        if request is None:
            break
        method, args = request
        try:
            if rows is None:
                rows = Rows(factory, count)
                if "cv2" in sys.modules:
                    sys.modules["cv2"].setNumThreads(1)
            reply = ("done", getattr(rows, method)(*args))
        except WorldplanError as error:
            reply = ("refused", error)
        except Exception:
            reply = ("failed", traceback.format_exc())
        try:
            connection.send(reply)
        except OSError:
            break
    if rows is not None:
        rows.close()


@contextmanager
def _without_main(keep: bool) -> Iterator[None]:
    """Hides the running script from multiprocessing, which would run it again in the child.

    The child needs it only where it defines the factory. Otherwise running it again costs time, may
    import torch, and fails in scripts without ``if __name__ == "__main__"``.
    """
    main = sys.modules["__main__"]
    if not keep:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
