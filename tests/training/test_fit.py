"""The training loop on a small network with dropout, batch norm, noise and a target network."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from worldplan.errors import CheckpointError, ConfigError, DataError, ProtocolMismatch, RunError, UsageError
from worldplan.seeding import Noise
from worldplan.training.ema import Ema
from worldplan.training.fit import BEST, LAST, fit
from worldplan.training.optimizers import AdamW
from worldplan.training.records import StepRecord
from worldplan.training.resume import load_facts, load_state
from worldplan.training.schedules import Schedule
from worldplan.types import Batch

FAST = AdamW(lr=1e-2)
SMALL: dict[str, Any] = {"steps": 12, "optimizer": FAST, "seed": 3, "log_every": 1}


class Net(nn.Module):
    """Regresses x on itself through everything a resume could lose."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
        for parameter in self.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        self.target = copy.deepcopy(self.layers).requires_grad_(False)
        self.poison: int | None = None
        self.steps: list[int] = []

    def loss(self, batch: Batch, noise: Noise, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        self.steps.append(step)
        x = batch.obs["state"][:, 0]
        pull = (self.layers(x) - self.target(x)).square().mean()
        error = (self.layers(x + 0.1 * noise.normal(3)) - x).square().mean()
        factor = math.nan if step == self.poison else 1.0
        return factor * (error + 0.1 * pull), {"error": error.detach()}

    def after_step(self) -> None:
        for slow, fast in zip(self.target.parameters(), self.layers.parameters(), strict=True):
            slow.data.lerp_(fast.data, 0.1)


def batches(step: int) -> Batch:
    rng = np.random.default_rng(step)
    state = torch.from_numpy(rng.normal(size=(8, 2, 3)).astype(np.float32))
    return Batch({"state": state}, torch.zeros(8, 1, 2), torch.ones(8, 1, dtype=torch.bool))


def equal(first: nn.Module, second: nn.Module) -> bool:
    """Bit for bit."""
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def ticking(seconds: float) -> Callable[[], float]:
    """A clock that moves on by `seconds` each time it is read."""
    now = [0.0]

    def clock() -> float:
        now[0] += seconds
        return now[0]

    return clock


@pytest.mark.parametrize("with_ema", [False, True])
@pytest.mark.parametrize("how", ["killed", "stopped", "interrupted"])
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, how: str, with_ema: bool) -> None:
    def start(**more: Any) -> tuple[Net, Ema[Net] | None, Iterator[StepRecord]]:
        model = Net()
        average = Ema(model, 0.9) if with_ema else None
        return model, average, fit(model, batches, **SMALL, ema=average, checkpoint_every=5, **more)

    whole, whole_average, records = start()
    losses = [record.loss for record in records]
    assert losses[-1] < losses[0]
    folder, before = tmp_path / "run", []
    _, _, records = start(folder=folder)
    with closing(records), contextlib.suppress(KeyboardInterrupt):
        for record in records:
            before.append(record.loss)
            if record.step == 7:
                # what a kill would leave behind
                shutil.copytree(folder, tmp_path / "killed")
                if how == "interrupted":
                    raise KeyboardInterrupt
                break
    if how == "killed":
        folder, before = tmp_path / "killed", before[:5]
    assert load_facts(folder / LAST)["step"] == len(before)
    torch.rand(7)  # a new process finds PyTorch's generator elsewhere
    model, average, records = start(folder=folder, resume=True)
    assert before + [record.loss for record in records] == losses
    assert equal(model, whole)
    if average and whole_average:
        assert equal(average.module, whole_average.module) and not equal(average.module, whole)
    assert list(start(folder=folder, resume=True)[2]) == [], "there is nothing left to do"


def test_nothing_global_leaks() -> None:
    model = Net()
    state = torch.get_rng_state()
    list(fit(model, batches, **SMALL))
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_follows_the_seed_and_the_step_alone() -> None:
    first, second, third = Net(), Net(), Net()
    list(fit(first, batches, **SMALL))
    torch.rand(5)
    list(fit(second, batches, **SMALL))
    list(fit(third, batches, **{**SMALL, "seed": 4}))
    assert equal(first, second) and not equal(first, third)


def test_the_step_is_adamw_with_clipping_and_the_schedule() -> None:
    """Against the same update written out by hand."""
    model, other = Plain(), Plain()
    config = AdamW(lr=0.05, weight_decay=0.1)
    schedule = Schedule(warmup=0.5)
    list(fit(model, batches, steps=4, optimizer=config, schedule=schedule, clip_norm=0.01))
    moment = second = torch.zeros(3)
    for step in range(4):
        weight = other.weight.detach().requires_grad_()
        (gradient,) = torch.autograd.grad((batches(step).obs["state"] * weight - 1).square().mean(), weight)
        gradient = gradient * 0.01 / (gradient.norm() + 1e-6)
        rate = 0.05 * (step + 0.5) / 2 if step < 2 else 0.05 * (1 + math.cos(math.pi * (step - 1.5) / 2)) / 2
        moment, second = 0.9 * moment + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        root = (second / (1 - 0.999 ** (step + 1))).sqrt()
        change = moment / (1 - 0.9 ** (step + 1)) / (root + 1e-8) + 0.1 * weight.detach()
        other.weight.data -= rate * change
    torch.testing.assert_close(model.weight, other.weight)


class Plain(nn.Module):
    """Scales x to one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        self.dtypes: set[torch.dtype] = set()

    def loss(self, batch: Batch, noise: Noise, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        self.dtypes.add((torch.eye(3) @ self.weight[:, None]).dtype)
        return (batch.obs["state"] * self.weight - 1).square().mean(), {}

    def after_step(self) -> None:
        pass


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_precision_changes_the_computation_but_not_the_weights(precision: Any, dtype: torch.dtype) -> None:
    model = Plain()
    list(fit(model, batches, steps=2, precision=precision))
    assert model.dtypes == {dtype} and model.weight.dtype == torch.float32


def test_records_cover_the_steps_between_them() -> None:
    model = Net()
    clock = ticking(1.0)
    records = list(fit(model, batches, **{**SMALL, "log_every": 5}, clock=clock))
    assert [record.step for record in records] == [5, 10, 12]
    single = [record for record in fit(Net(), batches, **SMALL)]
    assert records[0].loss == pytest.approx(np.mean([record.loss for record in single[:5]]))
    assert records[2].metrics["error"] == pytest.approx(
        np.mean([record.metrics["error"] for record in single[10:]])
    )
    assert records[-1].progress == 1 and records[0].progress == pytest.approx(5 / 12)
    assert records[0].metrics["grad_norm"] > 0
    assert records[0].samples_per_second == pytest.approx(8 / records[0].seconds)
    assert 0 < records[0].data_seconds < records[0].seconds
    assert records[-1].lr == single[-1].lr < records[0].lr


def test_a_time_budget_stops_cleanly_and_plans_the_schedule(tmp_path: Path) -> None:
    clock = ticking(0.25)
    options = {**SMALL, "steps": 10**6, "max_seconds": 30.0, "folder": tmp_path}
    records = list(fit(Net(), batches, **options, schedule=Schedule(warmup=0.0), clock=clock))
    assert 10 < len(records) < 40
    assert records[-1].elapsed >= 30 and records[-2].elapsed < 30 and records[-1].progress == 1
    assert records[-1].lr < 0.02 * FAST.lr and records[0].lr > 0.98 * FAST.lr
    assert load_facts(tmp_path / LAST)["step"] == records[-1].step
    options["max_seconds"] = 10**9
    assert [r.step for r in fit(Net(), batches, **{**options, "steps": 3, "folder": None})] == [1, 2, 3]


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    model = Net()
    model.poison = 7
    records = fit(model, batches, **SMALL, folder=tmp_path, checkpoint_every=5)
    with pytest.raises(RunError, match="loss is not finite at step 7"):
        list(records)
    assert load_facts(tmp_path / LAST)["step"] == 5
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


def test_ctrl_c_finishes_the_step_and_saves(tmp_path: Path) -> None:
    class Interrupted(Net):
        def loss(self, batch: Batch, noise: Noise, step: int) -> tuple[Tensor, dict[str, Tensor]]:
            if step == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return super().loss(batch, noise, step)

    handler = signal.getsignal(signal.SIGINT)
    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        seen.extend(record.step for record in fit(Interrupted(), batches, **SMALL, folder=tmp_path))
    assert load_facts(tmp_path / LAST)["step"] == 4, "the step that had begun was finished"
    assert signal.getsignal(signal.SIGINT) is handler
    resumed, whole = Net(), Net()
    list(fit(resumed, batches, **SMALL, folder=tmp_path, resume=True))
    list(fit(whole, batches, **SMALL))
    assert equal(resumed, whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == [BEST, LAST]


def test_an_interrupt_in_the_middle_of_a_step_saves_nothing_half_done(tmp_path: Path) -> None:
    class Torn(Net):
        def after_step(self) -> None:
            if self.steps[-1] == 6:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(fit(Torn(), batches, **SMALL, folder=tmp_path, checkpoint_every=5))
    assert load_facts(tmp_path / LAST)["step"] == 5


def test_best_is_the_lowest_validation(tmp_path: Path) -> None:
    model = Net()
    scores = iter([3.0, 1.0, 2.0, math.nan])
    seen: dict[int, dict[str, Tensor]] = {}

    def validate(step: int) -> float:
        assert not model.training and not torch.is_grad_enabled()
        seen[step] = {key: value.clone() for key, value in model.state_dict().items()}
        return next(scores)

    options = {**SMALL, "log_every": 4, "checkpoint_every": 3, "folder": tmp_path}
    records = list(fit(model, batches, **options, validate=validate))
    # measured at 3, 6, 9 and 12, told in the record that follows
    assert [record.metrics["validation"] for record in records[:2]] == [3.0, 1.0]
    assert math.isnan(records[2].metrics["validation"])
    assert load_facts(tmp_path / BEST)["step"] == 6 and load_facts(tmp_path / LAST)["step"] == 12
    best = Net()
    load_state(tmp_path / BEST, best)
    assert all(torch.equal(value, seen[6][key]) for key, value in best.state_dict().items())


def test_another_configuration_is_refused_with_the_differences(tmp_path: Path) -> None:
    list(fit(Net(), batches, **SMALL, folder=tmp_path, config={"data": "a.h5"}))
    changed = {**SMALL, "optimizer": AdamW(lr=0.5), "folder": tmp_path, "resume": True}
    with pytest.raises(ProtocolMismatch) as caught:
        fit(Net(), batches, **changed, config={"data": "b.h5"})
    assert "config.data: expected 'a.h5', found 'b.h5'" in str(caught.value)
    assert "optimizer.lr: expected 0.01, found 0.5" in str(caught.value)
    with pytest.raises(ProtocolMismatch, match="weight: expected nothing, found"):
        fit(Plain(), batches, **SMALL, folder=tmp_path, resume=True, config={"data": "a.h5"})
    with pytest.raises(CheckpointError, match="already holds a training"):
        fit(Net(), batches, **SMALL, folder=tmp_path)


def test_what_cannot_be_resumed_or_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no training to resume"):
        fit(Net(), batches, **SMALL, folder=tmp_path / "nowhere", resume=True)
    (tmp_path / LAST).write_bytes(b"cut off")
    with pytest.raises(CheckpointError, match="cannot be read"):
        fit(Net(), batches, **SMALL, folder=tmp_path, resume=True)
    with pytest.raises(UsageError, match="no folder"):
        fit(Net(), batches, **SMALL, resume=True)
    with pytest.raises(UsageError, match="at least 1"):
        fit(Net(), batches, steps=0)
    with pytest.raises(ConfigError, match="nothing to train"):
        fit(Net().requires_grad_(False), batches, **SMALL)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        fit(Net(), batches, **SMALL, folder=blocked / "run")


def test_states_hold_no_code(tmp_path: Path) -> None:
    list(fit(Net(), batches, **SMALL, folder=tmp_path))
    raw = (tmp_path / LAST).read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert json.loads(header["__metadata__"]["worldplan"])["step"] == 12
    assert {"model.layers.0.weight", "optimizer.0.exp_avg"} <= header.keys()


def test_tied_weights_and_memory_layout_survive(tmp_path: Path) -> None:
    class Tied(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.same = self.conv

        def loss(self, batch: Batch, noise: Noise, step: int) -> tuple[Tensor, dict[str, Tensor]]:
            image = batch.obs["state"].reshape(4, 3, 2, 2)
            return self.same(image).square().mean() + self.weight.square().sum(), {}

    options = {"optimizer": FAST, "log_every": 1, "checkpoint_every": 2}
    init = Tied().state_dict()

    def fresh() -> Tied:
        model = Tied()
        model.load_state_dict(init)
        return model

    whole, parts = fresh(), fresh()
    losses = [r.loss for r in fit(whole, batches, steps=4, **options)]
    records = fit(parts, batches, steps=4, folder=tmp_path, **options)
    first = [next(records).loss, next(records).loss]
    records.close()
    rest = fit(fresh(), batches, steps=4, folder=tmp_path, resume=True, **options)
    assert first + [r.loss for r in rest] == losses


def test_vectors_can_be_spared_from_decay() -> None:
    groups = AdamW(decay_vectors=False).build(Net()).param_groups
    assert [(len(group["params"]), group["weight_decay"]) for group in groups] == [(2, 1e-3), (4, 0.0)]


def test_the_average_forgets_the_initial_weights() -> None:
    model = Plain()
    average = Ema(model, 0.99)
    model.weight.data.fill_(5.0)
    for step in range(30):
        average.update(model, step)
    assert (average.module.weight - 5).abs().max() < 0.05
    assert not average.module.weight.requires_grad and not average.module.training
