"""Environment steps per second, with and without frames, in this process and in 1 and 2 workers.

Policies are left out: random actions, chunks of five as a model step has them, rows reset when they are
done. Beside them stand the steps per second of predicting with the simulator, as planning on the true
dynamics does.

    python benchmarks/envs.py [--envs pusht tworoom reacher] [--seconds 1.0] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from worldplan.envs.registry import names
from worldplan.envs.simulator_model import SimulatorModel
from worldplan.envs.vector import SimVectorEnv
from worldplan.errors import WorldplanError
from worldplan.seeding import Noise

ROWS, CHUNK = 8, 5


def rate(run: Callable[[], int], seconds: float) -> float:
    """Steps per second of `run`, which returns how many it made; once to warm up."""
    run()
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        count += run()
    return count / spent


def stepping(name: str, workers: int, pixels: bool, seconds: float) -> float:
    """Steps per second of a vector environment under random actions."""
    env, rng = SimVectorEnv(name, ROWS, workers=workers, pixels=pixels), np.random.default_rng(0)
    try:
        env.reset(seed=0)

        def run() -> int:
            actions = rng.uniform(-0.3, 0.3, (ROWS, CHUNK, 2)).astype(np.float32)
            _, _, terminated, _, _ = env.step_chunk(actions)
            if terminated[:, -1].any():
                env.reset(seed=1, options={"mask": terminated[:, -1]})
            return int((~terminated).sum())

        return rate(run, seconds)
    finally:
        env.close()


def predicting(name: str, workers: int, seconds: float) -> float:
    """Simulated steps per second of 300 candidates of 25 steps each, or of 32 where it is slow."""
    model = SimulatorModel(name, workers=workers)
    try:
        rows = 300 if model.task.advance else 32
        env = model.task.make(pixels=False)
        state = torch.from_numpy(env.reset(seed=0)[0]["state"]).double().expand(rows, -1)
        actions = torch.from_numpy(np.random.default_rng(0).uniform(-0.3, 0.3, (rows, 5, 10)))
        noise = Noise.of(0, rows)

        def run() -> int:
            model.predict({"state": state}, actions, noise, torch.tensor([5]))
            return rows * 25

        return rate(run, seconds)
    finally:
        model.close()


def measure(name: str, seconds: float) -> list[dict[str, Any]]:
    """All figures of one environment; a line with the reason where frames cannot be drawn."""
    lines: list[dict[str, Any]] = []
    for pixels in (False, True):
        for workers in (0, 1, 2):
            line = {"env": name, "what": "frames" if pixels else "states", "workers": workers}
            try:
                line["steps_per_second"] = round(stepping(name, workers, pixels, seconds), 1)
            except WorldplanError as error:
                line["error"] = str(error).splitlines()[0]
            lines.append(line)
    for workers in (0, 2):
        line = {"env": name, "what": "true dynamics", "workers": workers}
        lines.append({**line, "steps_per_second": round(predicting(name, workers, seconds), 1)})
    return lines


def main() -> None:
    """Measures, prints JSON, and writes it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", nargs="+", default=list(names()))
    parser.add_argument("--seconds", type=float, default=1.0, help="per figure")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = {
        "benchmark": "envs",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "rows": ROWS,
        "image_size": 64,
        "figures": [line for name in arguments.envs for line in measure(name, arguments.seconds)],
    }
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
