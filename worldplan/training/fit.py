"""Training as a generator: it takes the steps and yields records; the caller logs, probes and saves.

::

    for record in fit(model, windows.sampler(128).__getitem__, steps=5000, folder=out):
        log(record.step, record.metrics)

A step depends on nothing but the weights, the seed and its own number: batches are asked for by
number, draws come from `Noise` keyed by it, and layers that use PyTorch's generator (dropout) see one
seeded from it. So a run that was stopped and resumed equals the uninterrupted one, bit for bit on a
CPU, as long as the schedule follows steps and not the clock.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from worldplan import tree
from worldplan.errors import CheckpointError, RunError, UsageError
from worldplan.protocol import require_match
from worldplan.seeding import Noise, derive
from worldplan.training.ema import Ema
from worldplan.training.interrupt import deferred
from worldplan.training.optimizers import AdamW, set_rate
from worldplan.training.records import StepFacts, StepRecord, summarize
from worldplan.training.resume import load_facts, load_state, require_writable, save_state
from worldplan.training.schedules import Schedule, progress
from worldplan.types import Batch

LAST, BEST = "last.safetensors", "best.safetensors"
_SAVED = ("step", "elapsed", "best", "loss_sum", "loss_count")


def fit(
    model: nn.Module,
    batches: Callable[[int], Batch],
    *,
    steps: int,
    optimizer: AdamW = AdamW(),  # noqa: B008
    schedule: Schedule = Schedule(),  # noqa: B008
    clip_norm: float | None = 1.0,
    seed: int = 0,
    precision: Literal["fp32", "bf16"] = "fp32",
    max_seconds: float | None = None,
    log_every: int = 50,
    checkpoint_every: int | None = None,
    folder: Path | str | None = None,
    resume: bool = False,
    config: Mapping[str, Any] | None = None,
    ema: Ema[Any] | None = None,
    validate: Callable[[int], float] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Generator[StepRecord, None, None]:
    """Trains a `Trainable` module in place.

    With a `folder`, ``last.safetensors`` holds the state to resume from (written every
    `checkpoint_every` steps, at the end, at Ctrl-C, and when the caller stops early), and
    ``best.safetensors`` the one with the lowest `validate`, or mean training loss where there is
    none. After a loss that is not finite nothing is written.

    Args:
        model: has ``loss(batch, noise, step)`` and ``after_step()``. Batches are moved to its device.
        batches: the batch of a step, a function of its number alone.
        steps: how many.
        optimizer: settings of AdamW.
        schedule: learning rate over the training.
        clip_norm: largest norm of the gradient, or None.
        seed: of everything drawn here.
        precision: ``"bf16"`` computes the loss under autocast; weights stay as they are.
        max_seconds: stops cleanly after this wall-clock time, toward which the schedule is planned.
        log_every: steps per record; the last one may cover fewer.
        checkpoint_every: steps per checkpoint; None writes one at the end only.
        folder: where the states go; None keeps nothing.
        resume: continue from ``last.safetensors`` in `folder`.
        config: plain values that must be the same when resuming, beside the arguments above.
        ema: averaged weights, updated in place.
        validate: lower is better; called with the step at every checkpoint, in evaluation mode and
            without gradients.
        clock: seconds, for tests.

    Raises:
        UsageError: the arguments fit neither each other nor the folder.
        CheckpointError: there is nothing to resume, or it does not fit the model.
        DataError: the folder cannot be written.
        ProtocolMismatch: it was started with another configuration.
        RunError: the loss or its gradient is not finite (while iterating).
    """
    if min(steps, log_every, checkpoint_every or 1) < 1 or precision not in ("fp32", "bf16"):
        raise UsageError(
            "training cannot start",
            expected="steps, log_every and checkpoint_every of at least 1, precision fp32 or bf16",
            found=f"{steps}, {log_every}, {checkpoint_every}, {precision}",
        )
    place = None if folder is None else Path(folder)
    settings = {
        "steps": steps,
        "optimizer": asdict(optimizer),
        "schedule": asdict(schedule),
        "clip_norm": clip_norm,
        "seed": seed,
        "precision": precision,
        "max_seconds": max_seconds,
        "ema": None if ema is None else ema.decay,
        "parameters": {name: list(value.shape) for name, value in model.named_parameters()},
        "config": dict(config or {}),
    }
    plan = _Plan(
        batches=batches,
        steps=steps,
        lr=optimizer.lr,
        schedule=schedule,
        clip_norm=clip_norm,
        seed=seed,
        precision=precision,
        max_seconds=max_seconds,
        log_every=log_every,
        checkpoint_every=checkpoint_every,
        folder=place,
        config=json.loads(json.dumps(settings)),
        validate=validate,
        clock=clock,
    )
    run = _Run(model, optimizer.build(model), ema)
    _open(plan, run, resume)
    return _train(plan, run)


@dataclass(frozen=True)
class _Plan:
    """The arguments of `fit`."""

    batches: Callable[[int], Batch]
    steps: int
    lr: float
    schedule: Schedule
    clip_norm: float | None
    seed: int
    precision: str
    max_seconds: float | None
    log_every: int
    checkpoint_every: int | None
    folder: Path | None
    config: dict[str, Any]
    validate: Callable[[int], float] | None
    clock: Callable[[], float]


@dataclass
class _Run:
    """What changes while training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    ema: Ema[Any] | None
    step: int = 0
    elapsed: float = 0.0
    best: float | None = None
    loss_sum: float = 0.0  # since the last checkpoint, as is the count
    loss_count: int = 0
    recent: list[StepFacts] = field(default_factory=list)  # since the last record
    validation: float | None = None  # not yet in a record
    whole: bool = True  # False while a step is changing the weights

    def save(self, path: Path, config: Mapping[str, Any]) -> None:
        """Writes everything needed to go on."""
        facts = {key: getattr(self, key) for key in _SAVED}
        average = None if self.ema is None else self.ema.module
        save_state(path, {**facts, "config": config}, self.model, self.optimizer, average)

    def load(self, path: Path) -> None:
        """Takes over what `save` wrote."""
        average = None if self.ema is None else self.ema.module
        facts = load_state(path, self.model, self.optimizer, average)
        for key in _SAVED:
            setattr(self, key, facts[key])


def _open(plan: _Plan, run: _Run, resume: bool) -> None:
    """Loads the state to resume from, or makes sure that none is overwritten."""
    if plan.folder is None:
        if resume:
            raise UsageError("there is no folder to resume from", fix="pass folder=... along with resume")
        return
    last = plan.folder / LAST
    if last.exists() and not resume:
        raise CheckpointError(
            f"{plan.folder} already holds a training",
            expected="a folder without one",
            found=LAST,
            fix="resume=True to go on with it, or another folder",
        )
    if resume:
        require_match(
            load_facts(last)["config"],
            plan.config,
            f"the training in {plan.folder} and this configuration",
            fix="resume with the arguments it was started with, or start anew in another folder",
        )
        run.load(last)
    require_writable(plan.folder)


def _train(plan: _Plan, run: _Run) -> Generator[StepRecord, None, None]:
    began = plan.clock() - run.elapsed
    try:
        while run.step < plan.steps and not _late(plan, run):
            with deferred():
                _take_step(plan, run)
                run.elapsed = plan.clock() - began
            over = run.step == plan.steps or _late(plan, run)
            if over or (plan.checkpoint_every and run.step % plan.checkpoint_every == 0):
                _checkpoint(plan, run)
            if over or run.step % plan.log_every == 0:
                timed = 0.0 if plan.max_seconds is None else run.elapsed / plan.max_seconds
                share = min(1.0, max(run.step / plan.steps, timed))
                yield summarize(run.recent, run.step, share, run.elapsed, run.validation)
                run.recent, run.validation = [], None
    except (KeyboardInterrupt, GeneratorExit):
        if plan.folder is not None and run.whole:
            run.save(plan.folder / LAST, plan.config)
        raise


def _late(plan: _Plan, run: _Run) -> bool:
    return plan.max_seconds is not None and run.elapsed >= plan.max_seconds


def _take_step(plan: _Plan, run: _Run) -> None:
    model, step, began = run.model, run.step, plan.clock()
    if not model.training:
        model.train()
    device = next(model.parameters()).device
    batch = _moved(plan.batches(step), device)
    data_seconds = plan.clock() - began
    run.whole = False
    rate = plan.lr * plan.schedule(progress(step, plan.steps, run.elapsed, plan.max_seconds))
    set_rate(run.optimizer, rate)
    loss, metrics = _differentiate(plan, run, batch, device)
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), plan.clip_norm or math.inf))
    _require_finite(norm, "gradient", step)
    run.optimizer.step()
    model.after_step()  # type: ignore[operator]
    if run.ema is not None:
        run.ema.update(model, step)
    run.step, run.loss_sum, run.loss_count = step + 1, run.loss_sum + loss, run.loss_count + 1
    run.whole = True
    seconds = plan.clock() - began
    rows = int(batch.mask.shape[0])
    run.recent.append(StepFacts(loss, metrics, norm, rate, rows, seconds, data_seconds))


def _differentiate(
    plan: _Plan, run: _Run, batch: Batch, device: torch.device
) -> tuple[float, Mapping[str, Tensor]]:
    """Leaves the gradient of the loss in the parameters."""
    rows = torch.arange(batch.mask.shape[0], device=device)
    noise = Noise(plan.seed, rows).at("train", run.step)
    half = torch.autocast(device.type, torch.bfloat16, enabled=plan.precision == "bf16")
    with _seeded(derive(plan.seed, "dropout", run.step), device):
        with half:
            loss, metrics = run.model.loss(batch, noise, run.step)  # type: ignore[operator]
        value = float(loss.detach())
        _require_finite(value, "loss", run.step)
        run.optimizer.zero_grad(set_to_none=True)
        loss.backward()
    return value, metrics


def _moved(batch: Batch, device: torch.device) -> Batch:
    actions, mask = batch.actions.to(device), batch.mask.to(device)
    return replace(batch, obs=tree.to(batch.obs, device), actions=actions, mask=mask)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seeds PyTorch's own generators for a block, and puts them back as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.default_generators[device.index or 0].manual_seed(seed)
        yield


def _require_finite(value: float, what: str, step: int) -> None:
    if not math.isfinite(value):
        raise RunError(
            f"the {what} is not finite at step {step}; nothing was saved after it",
            expected="a finite number",
            found=str(value),
            fix="a lower learning rate, clip_norm, precision fp32, or worldplan data check on the data",
        )


def _checkpoint(plan: _Plan, run: _Run) -> None:
    """Validates and saves."""
    score = _validated(plan, run)
    judged = run.loss_sum / run.loss_count if score is None else score
    is_best = math.isfinite(judged) and (run.best is None or judged < run.best)
    run.best = judged if is_best else run.best
    run.validation, run.loss_sum, run.loss_count = score, 0.0, 0
    if plan.folder is not None:
        run.save(plan.folder / LAST, plan.config)
        if is_best:
            run.save(plan.folder / BEST, plan.config)


def _validated(plan: _Plan, run: _Run) -> float | None:
    if plan.validate is None:
        return None
    run.model.eval()
    try:
        with torch.no_grad():
            return float(plan.validate(run.step))
    finally:
        run.model.train()
