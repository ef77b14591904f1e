"""RDMReg against closed forms, published values, SciPy's distance, and over two processes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from worldplan.models.rdmreg import RDMReg, scale, second_moment, temporal_jaccard
from worldplan.models.sigreg import directions
from worldplan.seeding import Noise

NOISE = Noise.of(3, 8)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.5])
def test_the_target_before_it_is_rectified_has_unit_variance(p: float) -> None:
    assert scale(p) == pytest.approx({1.0: 1 / math.sqrt(2), 2.0: 1.0}.get(p, scale(p)))
    samples = RDMReg(p, rectified=False).target(Noise.of(0, 400), 500)
    assert samples.mean().item() == pytest.approx(0, abs=0.01)
    assert samples.var().item() == pytest.approx(1, rel=0.05 if p < 1 else 0.02)
    law = stats.gennorm(p, scale=scale(p) * p ** (1 / p))
    assert stats.kstest(samples.flatten().numpy()[:20_000], law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("mu", [-1.5, 0.0, 0.7])
def test_the_second_moment_is_the_integral(p: float, mu: float) -> None:
    law = stats.gennorm(p, loc=mu, scale=scale(p) * p ** (1 / p))
    found, _ = integrate.quad(lambda y: y * y * law.pdf(y), 0, mu + 40, points=[max(mu, 0.0)])
    assert second_moment(p, mu) == pytest.approx(found, rel=1e-6)
    drawn = RDMReg(p, mu, unit_power=True).target(Noise.of(0, 400), 500)
    assert drawn.square().mean().item() == pytest.approx(1, rel=0.06)


def test_published_facts_of_the_rectified_laplace() -> None:
    samples = RDMReg().target(Noise.of(0, 400), 1000)
    assert samples.mean().item() == pytest.approx(0.354, abs=0.005)
    assert samples.square().mean().item() == pytest.approx(0.50, abs=0.01)
    assert (samples == 0).float().mean().item() == pytest.approx(0.5, abs=0.005)


@pytest.mark.parametrize(
    ("batch_size", "floor", "gaussian", "dense"),
    [(64, 0.031, 0.0325, 0.085), (128, 0.018, 0.0195, 0.043), (512, 0.0048, 0.007, 0.012)],
)
def test_published_values(batch_size: int, floor: float, gaussian: float, dense: float) -> None:
    def mean(codes: RDMReg, target: RDMReg) -> float:
        found = []
        for draw in range(6):
            latents = codes.target(Noise.of(7, batch_size).at(draw), 1, 192)
            found.append(target(latents, Noise.of(8, batch_size).at(draw)).item())
        return float(np.mean(found))

    laplace, normal = RDMReg(directions=256), RDMReg(2.0, directions=256)
    assert mean(laplace, laplace) == pytest.approx(floor, rel=0.25)
    assert mean(normal, laplace) == pytest.approx(gaussian, rel=0.25)
    control = RDMReg(2.0, rectified=False, directions=256)
    assert mean(control, control) == pytest.approx(dense, rel=0.25)
    zeros = torch.zeros(batch_size, 1, 192)
    assert laplace(zeros, Noise.of(8, batch_size)).item() == pytest.approx(0.5, abs=0.05)


def test_it_is_the_squared_distance_of_sorted_projections() -> None:
    latents, regulariser = Noise.of(1, 8).normal(3, 5), RDMReg(directions=6)
    target = regulariser.target(NOISE.at("rdmreg", "target"), 3, 5)
    unit = directions(latents, NOISE.at("rdmreg"), 6)
    mask = torch.ones(8, 3, dtype=torch.bool)
    mask[5:, 1] = False
    total = []
    for time in range(3):
        rows = mask[:, time]
        for index in range(6):
            one, two = (each[rows, time] @ unit[:, index] for each in (latents, target))
            # the optimal assignment in one dimension, from its definition
            cost = (one[:, None] - two[None]).square().numpy()
            from scipy.optimize import linear_sum_assignment

            total.append(cost[linear_sum_assignment(cost)].mean())
    by_time = np.array(total).reshape(3, 6).mean(1)
    assert regulariser(latents, NOISE, mask).item() == pytest.approx(by_time.mean(), rel=1e-4)


def test_descending_it_makes_codes_sparse() -> None:
    codes = (Noise.of(1, 256).normal(1, 4) + 1).requires_grad_()
    regulariser, optimizer = RDMReg(directions=32), torch.optim.Adam([codes], 0.05)
    for step in range(300):
        optimizer.zero_grad()
        regulariser(codes, Noise.of(2, 256).at(step)).backward()
        optimizer.step()
    near_zero = (codes.abs() < 0.05).float().mean().item()
    assert 0.3 < near_zero < 0.65
    assert codes.mean().item() == pytest.approx(0.354, abs=0.06)


def test_jaccard_is_the_share_of_what_changes() -> None:
    same = torch.tensor([[[1.0, 2.0], [1.0, 2.0], [0.0, 3.0]]])
    seen = torch.ones(1, 3, dtype=torch.bool)
    # from (1, 2) to (0, 3): the smaller entries sum to 2, the larger ones to 4
    assert temporal_jaccard(same, NOISE, seen).item() == pytest.approx((0 + 0.5) / 2)
    assert temporal_jaccard(same, NOISE, torch.tensor([[True, True, False]])).item() == pytest.approx(0)


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    rows = torch.arange(4) + 4 * rank
    mine = NOISE.normal(2, 6)[rows].requires_grad_()
    value = RDMReg(directions=16)(mine, NOISE.select(rows), mask_of()[rows])
    value.backward()
    torch.save((value.detach(), mine.grad), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def mask_of() -> Tensor:
    mask = torch.ones(8, 2, dtype=torch.bool)
    mask[[1, 6], 1] = False
    return mask


def test_two_processes_see_one_batch(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    latents = NOISE.normal(2, 6).requires_grad_()
    whole = RDMReg(directions=16)(latents, NOISE, mask_of())
    whole.backward()
    for value, _ in parts:
        torch.testing.assert_close(value, whole.detach())
    gradient = torch.cat([grad for _, grad in parts]) / 2
    torch.testing.assert_close(gradient, latents.grad)
