"""What all checks share: how a broken contract is told, and what nothing may touch."""

from __future__ import annotations

import pickle
import random  # noqa: TID251 - watched, not drawn from
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from worldplan import tree


def require(holds: bool, contract: str, expected: object, found: object) -> None:
    """Raises an `AssertionError` that names the broken contract, unless it holds.

    Raised by hand, so that ``python -O`` keeps it.
    """
    if not holds:
        raise AssertionError(f"{contract}\n  expected: {expected}\n  found:    {found}")


def require_shape(value: Any, shape: tuple[int, ...], contract: str) -> None:
    """Requires a tensor or an array of that shape."""
    has_shape = isinstance(value, Tensor | np.ndarray)
    found = tuple(value.shape) if has_shape else type(value).__name__
    require(has_shape and found == tuple(shape), contract, list(shape), found)


def require_close(found: Tensor, expected: Tensor, atol: float, contract: str) -> None:
    """Requires equal shapes and values within ``atol * max(1, |expected|)``; integers exactly."""
    require_shape(found, tuple(expected.shape), contract)
    if found.dtype.is_floating_point:
        allowed = atol * expected.abs().clamp(min=1)
        off = (found - expected).abs()
        # equal infinities differ by NaN
        wrong = ~((off <= allowed) | (found == expected))
    else:
        off, wrong = (found != expected).double(), found != expected
    largest = float(off[wrong].max()) if bool(wrong.any()) else 0.0
    require(
        not wrong.any(), contract, f"equal within {atol:g}", f"{int(wrong.sum())} off, by up to {largest:g}"
    )


def require_same(found: Mapping[str, Any], expected: Mapping[str, Any], contract: str) -> None:
    """Requires two trees of tensors to be equal, bit for bit."""
    require(found.keys() == expected.keys(), contract, sorted(expected), sorted(found))
    for key, value in expected.items():
        if isinstance(value, Mapping):
            require_same(found[key], value, contract)
        elif isinstance(value, Tensor):
            equal = torch.equal(torch.nan_to_num(found[key]), torch.nan_to_num(value))
            require(equal, contract, f"{key} as it was", "other values")


def require_rows(value: Mapping[str, Any], rows: int, contract: str) -> None:
    """Requires every tensor of a nested mapping to have that many rows."""
    for key, leaf in value.items():
        if isinstance(leaf, Mapping):
            require_rows(leaf, rows, contract)
        elif isinstance(leaf, Tensor):
            found = list(leaf.shape)
            require(leaf.ndim > 0 and leaf.shape[0] == rows, contract, f"{rows} rows", f"{key}: {found}")


def copied(value: Mapping[str, Any]) -> dict[str, Any]:
    """Copies the tensors of a nested mapping."""
    return tree.map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, value)


@contextmanager
def untouched_generators(what: str) -> Iterator[None]:
    """Requires that the block draws nothing from the global generators of Python, NumPy and torch."""

    def states() -> dict[str, bytes]:
        numpy = np.random.get_state(legacy=False)  # noqa: NPY002
        everybody = {
            "random": random.getstate(),
            "numpy.random": numpy,
            "torch": torch.get_rng_state().tolist(),
        }
        return {name: pickle.dumps(state) for name, state in everybody.items()}

    before = states()
    yield
    after = states()
    used = [name for name, state in before.items() if state != after[name]]
    contract = f"{what} draws from the noise it is given only"
    require(not used, contract, "global generators left alone", ", ".join(used))


@contextmanager
def evaluating(thing: object) -> Iterator[None]:
    """Puts a module into evaluation mode for the block."""
    was_training = isinstance(thing, nn.Module) and thing.training
    if isinstance(thing, nn.Module):
        thing.eval()
    try:
        yield
    finally:
        if isinstance(thing, nn.Module):
            thing.train(was_training)
