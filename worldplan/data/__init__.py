"""Episodes on disk: the native file, windows for training, splits, checks, evaluation sets."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Dataset": "native",
    "open": "native",
    "write": "native",
    "Windows": "windows",
}
__all__ = ["Dataset", "Windows", "open", "write"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
