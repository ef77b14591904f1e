"""Seconds per training step and images per second of LeWM, small and at the size of the paper.

A step is the whole of it: a batch already in memory, loss, gradient, clipping, AdamW. Beside it
stands what the machine multiplies at best, so that figures from different machines can be compared.

    python benchmarks/training.py [--models small paper] [--threads 1] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

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


def measure(case: Case, precision: Literal["fp32", "bf16"], max_seconds: float) -> dict[str, Any]:
    """Median over the steps that fit into the time, after one to warm up."""
    model, batch = build(case.config), make_batch(case)
    records = fit(
        model, lambda step: batch, steps=10**6, precision=precision, log_every=1, max_seconds=max_seconds
    )
    seconds = [record.seconds for record in records]
    seconds = seconds[1:] or seconds
    median = statistics.median(seconds)
    return {
        "precision": precision,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "image_size": case.config.image_size,
        "windows": case.windows,
        "frames": case.frames,
        "steps": len(seconds),
        "seconds_per_step": round(median, 4),
        "low_high": [round(min(seconds), 4), round(max(seconds), 4)],
        "images_per_second": round(case.windows * case.frames / median, 1),
    }


def multiply_rates() -> Mapping[str, float]:
    """GFLOP/s of a matrix product of typical shape, best of eight."""
    rates = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        left, right = torch.ones(900, 192, dtype=dtype), torch.ones(192, 1024, dtype=dtype)
        best = float("inf")
        for _ in range(8):
            begun = time.perf_counter()
            for _ in range(10):
                left @ right
            best = min(best, (time.perf_counter() - begun) / 10)
        rates[name] = round(2 * 900 * 192 * 1024 / best / 1e9, 1)
    return rates


def main() -> None:
    """Measures, prints, and saves where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], help="default: what pays here")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="per model and precision")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rates = multiply_rates()
    # without bf16 units a CPU emulates it, many times slower than fp32
    pays = ["fp32", "bf16"] if rates["bf16"] > rates["fp32"] else ["fp32"]
    precisions = arguments.precisions or pays
    result = {
        "benchmark": "training",
        "setting": {"threads": arguments.threads, "optimizer": "AdamW, gradient clipped to 1"},
        "models": {
            name: [measure(CASES[name], one, arguments.seconds) for one in precisions]
            for name in arguments.models
        },
        "matrix_product_gflops": rates,
        "machine": {
            "cpus": os.cpu_count(),
            "load_average": round(os.getloadavg()[0], 1),
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
