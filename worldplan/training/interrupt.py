"""Ctrl-C between steps: an update that has begun is finished before the interrupt is obeyed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred() -> Iterator[None]:
    """Holds back the first Ctrl-C until the block ends; a second one acts at once.

    Only the main thread can hold signals back, and only where Python's own handler is in place;
    elsewhere this does nothing.
    """
    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not own or threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        if arrived:
            signal.default_int_handler(number, frame)
        arrived.append(number)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if arrived:
        raise KeyboardInterrupt
