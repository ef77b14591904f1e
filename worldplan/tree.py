"""Mappings of tensors, treated as one thing: map, stack, concatenate, select, repeat, write.

A tree is a mapping from names to tensors or to further trees. Every function returns a new tree
and leaves its arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Tree = Mapping[str, Any]


def map(function: Callable[..., Any], tree: Tree, *rest: Tree) -> dict[str, Any]:  # noqa: A001
    """Applies `function` to each leaf, with the leaves of `rest` that stand at the same place."""
    for other in rest:
        assert other.keys() == tree.keys(), (sorted(other), sorted(tree))
    return {
        key: map(function, leaf, *(other[key] for other in rest))
        if isinstance(leaf, Mapping)
        else function(leaf, *(other[key] for other in rest))
        for key, leaf in tree.items()
    }


def leaves(tree: Tree) -> list[Any]:
    """All leaves, depth first, in order of the keys."""
    found: list[Any] = []
    for leaf in tree.values():
        found.extend(leaves(leaf) if isinstance(leaf, Mapping) else [leaf])
    return found


def rows(tree: Tree) -> int:
    """Number of rows B that every leaf shares."""
    sizes = {leaf.shape[0] for leaf in leaves(tree)}
    assert len(sizes) == 1, f"leaves disagree about their number of rows: {sorted(sizes)}"
    return int(sizes.pop())


def stack(trees: Sequence[Tree], dim: int = 0) -> dict[str, Any]:
    """Stacks leaves along a new axis."""
    return map(lambda *leaf: torch.stack(leaf, dim), trees[0], *trees[1:])


def concatenate(trees: Sequence[Tree], dim: int = 0) -> dict[str, Any]:
    """Concatenates leaves along an existing axis."""
    return map(lambda *leaf: torch.cat(leaf, dim), trees[0], *trees[1:])


def select(tree: Tree, index: Tensor) -> dict[str, Any]:
    """Keeps rows: ``index`` is int64 ``[M]`` or bool ``[B]``."""
    return map(lambda leaf: leaf[index.to(leaf.device)], tree)


def repeat(tree: Tree, count: int) -> dict[str, Any]:
    """Repeats each row `count` times in place: rows ``b`` become ``b, b, ..., b+1, b+1, ...``."""
    return map(lambda leaf: leaf.repeat_interleave(count, 0), tree)


def write(tree: Tree, index: Tensor, rows: Tree) -> dict[str, Any]:
    """Copies `tree` with ``rows`` ``[M, ...]`` written at int64 ``index`` ``[M]``."""

    def put(leaf: Tensor, new: Tensor) -> Tensor:
        copy = leaf.clone()
        copy[index.to(leaf.device)] = new.to(leaf)
        return copy

    return map(put, tree, rows)


def detach(tree: Tree) -> dict[str, Any]:
    """Cuts every leaf from its graph."""
    return map(lambda leaf: leaf.detach(), tree)


def to(tree: Tree, target: torch.device | torch.dtype | str) -> dict[str, Any]:
    """Moves every leaf to a device, or the floating ones to a dtype: counts and ids stay integers."""
    if isinstance(target, torch.dtype):
        return map(lambda leaf: leaf.to(target) if leaf.is_floating_point() else leaf, tree)
    return map(lambda leaf: leaf.to(target), tree)
