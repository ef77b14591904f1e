"""SIGReg against closed forms, published values, and a NumPy version written from the definition."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from worldplan.models.sigreg import FLOOR, SIGReg, directions
from worldplan.seeding import Noise

DIM = 192
NOISE = Noise.of(3, 1)


def normal(batch_size: int, time: int = 1, dim: int = DIM, name: str = "z") -> Tensor:
    return Noise.of(5, batch_size).at(name).normal(time, dim)


def mean_over_draws(make: Any, draws: int = 6) -> float:
    regulariser = SIGReg(256)
    values = [regulariser(make(str(i)), NOISE.at(i)).item() for i in range(draws)]
    return float(np.mean(values))


@pytest.mark.parametrize("batch_size", [32, 128, 512])
def test_floor_does_not_depend_on_batch_size(batch_size: int) -> None:
    found = mean_over_draws(lambda name: normal(batch_size, name=name), 10)
    assert abs(FLOOR - 1.06) < 0.002
    assert found == pytest.approx(1.06, abs=0.15)


@pytest.mark.parametrize("batch_size", [32, 128, 512])
def test_collapse_costs_in_proportion_to_batch_size(batch_size: int) -> None:
    zeros = SIGReg(64)(torch.zeros(batch_size, 2, DIM), NOISE).item()
    closed = math.sqrt(2 * math.pi) * (1 - math.sqrt(2) + 1 / math.sqrt(3))
    assert closed == pytest.approx(0.40892, abs=1e-5)
    # the integral is cut off at 3, where the published check values were computed the same way
    assert zeros == pytest.approx(closed * batch_size, rel=0.02)
    assert zeros == pytest.approx({32: 12.87, 128: 51.5, 512: 205.8}[batch_size], rel=2e-3)


def test_wrong_scale() -> None:
    for batch_size in (128, 512):
        found = mean_over_draws(lambda name, n=batch_size: 0.5 * normal(n, name=name))
        assert found == pytest.approx(0.153 * batch_size, rel=0.08)


@pytest.mark.parametrize(("batch_size", "published"), [(32, 1.9), (128, 4.4), (512, 16.3)])
def test_low_rank(batch_size: int, published: float) -> None:
    def make(name: str) -> Tensor:
        mix = Noise.of(5, 8).at("mix").normal(DIM)
        low = normal(batch_size, dim=8, name=name) @ (mix / mix.norm(dim=0))
        return low

    assert mean_over_draws(make) == pytest.approx(published, rel=0.2)


def test_equals_definition() -> None:
    latents = 0.7 * normal(12, 3, 5) + 0.2
    regulariser = SIGReg(8)
    unit = directions(latents, NOISE.at("sigreg"), 8).double().numpy()
    assert np.linalg.norm(unit, axis=0) == pytest.approx(1)
    total = []
    for t in range(3):
        for direction in unit.T:
            x = latents[:, t].double().numpy() @ direction
            knots = np.linspace(0, 3, 17)
            phi = np.exp(-(knots**2) / 2)
            error = np.abs(np.exp(1j * np.outer(knots, x)).mean(1) - phi) ** 2
            total.append(len(x) * 2 * np.trapezoid(error * phi, knots))
    assert regulariser(latents, NOISE).item() == pytest.approx(np.mean(total), rel=1e-4)


def test_masked_rows_are_absent() -> None:
    latents = normal(10, 3, 6)
    mask = torch.ones(10, 3, dtype=torch.bool)
    mask[7:, 1] = False
    mask[:, 2] = False
    spoiled = torch.where(mask[..., None], latents, torch.nan).requires_grad_()
    found = SIGReg(16)(spoiled, NOISE, mask)
    parts = [SIGReg(16)(latents[:n, t : t + 1], NOISE) for t, n in ((0, 10), (1, 7))]
    torch.testing.assert_close(found.detach(), torch.stack(parts).mean())
    found.backward()
    assert spoiled.grad is not None and spoiled.grad.isfinite().all()
    assert (spoiled.grad[~mask] == 0).all() and (spoiled.grad[mask] != 0).any(-1).all()


def test_draws_are_keyed_by_names_not_rows() -> None:
    latents, regulariser = normal(16, 2, 6), SIGReg(4)
    first = regulariser(latents, Noise.of(0, 16).at("train", 1))
    assert torch.equal(first, regulariser(latents, Noise.of(0, [5]).at("train", 1)))
    assert not torch.equal(first, regulariser(latents, Noise.of(0, 16).at("train", 2)))


def test_single_precision_whatever_the_latents() -> None:
    latents = normal(64, 2, 16)
    with torch.autocast("cpu", torch.bfloat16):
        found = SIGReg(16)(latents, NOISE)
    assert found.dtype == torch.float32
    assert torch.equal(found, SIGReg(16)(latents, NOISE))


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    latents, mask = normal(9, 2, 6), torch.ones(9, 2, dtype=torch.bool)
    rows = slice(0, 6) if rank == 0 else slice(6, 9)
    mine = latents[rows].requires_grad_()
    value = SIGReg(16)(mine, NOISE, mask[rows])
    value.backward()
    torch.save((value.detach(), mine.grad), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_ranks_see_one_batch(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    latents = normal(9, 2, 6).requires_grad_()
    whole = SIGReg(16)(latents, NOISE)
    whole.backward()
    for value, _ in parts:
        torch.testing.assert_close(value, whole.detach())
    # data-parallel training averages gradients over ranks
    gradient = torch.cat([grad for _, grad in parts]) / 2
    torch.testing.assert_close(gradient, latents.grad)
