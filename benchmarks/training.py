"""Seconds per training step and images per second of LeWM, small and at the size of the paper.

A step is the whole of it: a batch already in memory, loss, gradient, clipping, AdamW. Beside it
stands what the machine multiplies at best, so that figures from different machines can be compared.
Each model stops after `--steps` steps, or at the first step that ends after `--seconds`.

    python -m benchmarks.training [--quick] [--models small paper] [--threads 1] [--out FILE.json]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from benchmarks import machine, record
from worldplan.models.lewm import LeWM, LeWMConfig
from worldplan.training.fit import fit
from worldplan.types import ActionSpec, Batch


@dataclass(frozen=True)
class Case:
    """One model and how much it is fed at a time."""

    config: LeWMConfig
    windows: int
    frames: int


CASES = {
    "small": Case(LeWMConfig(state_dim=7, state_angles=(4,)), windows=128, frames=4),
    "paper": Case(LeWMConfig.paper(), windows=4, frames=4),
}


def build(config: LeWMConfig) -> LeWM:
    """An untrained model of Push-T's kind, with statistics of random rows."""
    model = LeWM(config, config.spec("pusht", ActionSpec(2, (-1.0, -1.0), (1.0, 1.0))))
    rng = np.random.default_rng(0)
    size = config.image_size
    model.fit_statistics(
        {
            "action": rng.normal(size=(100, 2)),
            "state": rng.normal(size=(100, max(1, config.state_dim))),
            "pixels": rng.integers(0, 256, (100, size, size, 3), np.uint8),
        }
    )
    return model


def make_batch(case: Case) -> Batch:
    """Random frames, as the reader of windows lays them out: channels last in memory."""
    config, rng = case.config, np.random.default_rng(1)
    shape = (case.windows, case.frames, config.image_size, config.image_size, 3)
    pixels = torch.from_numpy(rng.integers(0, 256, shape, np.uint8)).movedim(-1, -3)
    obs = {"pixels": pixels}
    if config.state_dim:
        states = rng.normal(size=(case.windows, case.frames, config.state_dim))
        obs["state"] = torch.from_numpy(states.astype(np.float32))
    actions = rng.normal(size=(case.windows, case.frames - 1, 2 * config.frame_skip)).astype(np.float32)
    mask = torch.ones(case.windows, case.frames - 1, dtype=torch.bool)
    return Batch(obs, torch.from_numpy(actions), mask)


def measure(name: str, case: Case, precision: Any, steps: int, max_seconds: float) -> dict[str, Any]:
    """Seconds of the steps that fit into the time, at least one, after one to warm up."""
    model, batch = build(case.config), make_batch(case)
    seconds: list[float] = []
    records = fit(model, lambda step: batch, steps=steps + 1, precision=precision, log_every=1)
    for each in records:
        seconds.append(each.seconds)
        if len(seconds) > 1 and sum(seconds[1:]) >= max_seconds:
            break
    records.close()
    seconds = seconds[1:]
    images, side = case.windows * case.frames, case.config.image_size
    return record.case(
        f"{name}, {precision}, {case.windows} windows of {case.frames} frames of {side} px",
        len(seconds),
        seconds_per_step=record.quartiles(seconds),
        images_per_second=record.quartiles([images / each for each in seconds]),
        million_parameters=record.digits(sum(each.numel() for each in model.parameters()) / 1e6, 3),
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, prints, and saves where asked."""
    parser = record.parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], help="default: what pays here")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20, help="most steps per model and precision")
    parser.add_argument("--seconds", type=float, default=60.0, help="per model and precision")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    cases = {name: CASES[name] for name in arguments.models}
    if arguments.quick:
        cases = {name: replace(case, windows=2) for name, case in cases.items() if name == "small"}
        arguments.steps = 3
    rates = machine.multiply_rates()
    measured = [
        measure(name, case, precision, arguments.steps, arguments.seconds)
        for name, case in cases.items()
        for precision in arguments.precisions or machine.precisions_that_pay(rates)
    ]
    setting = {"optimizer": "AdamW, gradient clipped to 1", "matrix_product_GFLOP/s": rates}
    record.finish("training", arguments, setting, measured)


if __name__ == "__main__":
    main()
