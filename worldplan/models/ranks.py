"""Reductions over the processes of a distributed training; with one process they do nothing.

Their gradients are reduced too, as every process computes the same loss of all rows: with gradients that
are averaged over processes afterwards, as `DistributedDataParallel` does, a step is that of one process
that sees every row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def ranks() -> int:
    """How many processes there are."""
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def over_ranks(value: Tensor) -> Tensor:
    """The sum over all processes."""
    if ranks() == 1:
        return value
    summed: Tensor = _Sum.apply(value)  # type: ignore[no-untyped-call]
    return summed


def rows_of_ranks(rows: Tensor) -> Tensor:
    """The rows ``[B, ...]`` of all processes, in their order, ``[ranks * B, ...]``; B is the same in all."""
    if ranks() == 1:
        return rows
    gathered: Tensor = _Gather.apply(rows)  # type: ignore[no-untyped-call]
    return gathered


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        torch.distributed.all_reduce(total)
        return total


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(ranks())]
        torch.distributed.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        torch.distributed.all_reduce(total)
        return total.chunk(ranks())[torch.distributed.get_rank()]
