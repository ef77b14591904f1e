"""Environment steps per second, with and without frames, in this process and in 1 and 2 workers.

Policies are left out: random actions, chunks of five as a model step has them, rows reset when they are
done. Beside them stand the steps per second of predicting with the simulator, as planning on the true
dynamics does.

    python -m benchmarks.envs [--quick] [--envs pusht tworoom reacher] [--repeats 7] [--out FILE.json]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks import record
from worldplan.envs.registry import names, task
from worldplan.envs.simulator_model import SimulatorModel
from worldplan.envs.vector import SimVectorEnv
from worldplan.errors import WorldplanError
from worldplan.seeding import Noise

ROWS, CHUNK = 8, 5


def rates(run: Callable[[], int], seconds: float, repeats: int) -> list[float]:
    """Steps per second of `run`, which returns how many it made, in each repeat; once to warm up."""
    run()
    found = []
    for _ in range(repeats):
        count, began = 0, time.perf_counter()
        while not count or time.perf_counter() - began < seconds:
            count += run()
        found.append(count / (time.perf_counter() - began))
    return found


def stepping(name: str, workers: int, pixels: bool, seconds: float, repeats: int) -> list[float]:
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

        return rates(run, seconds, repeats)
    finally:
        env.close()


def predicting(name: str, workers: int, seconds: float, repeats: int) -> list[float]:
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

        return rates(run, seconds, repeats)
    finally:
        model.close()


def measure(name: str, workers: Sequence[int], seconds: float, repeats: int) -> list[dict[str, Any]]:
    """All figures of one environment; a line with the reason where it cannot run or draw."""
    kinds: dict[str, Callable[[int], list[float]]] = {
        "states": lambda count: stepping(name, count, False, seconds, repeats),
        "frames": lambda count: stepping(name, count, True, seconds, repeats),
        "predicting with the simulator": lambda count: predicting(name, count, seconds, repeats),
    }
    lines: list[dict[str, Any]] = []
    for kind, run in kinds.items():
        for count in workers:
            if count and kind == "predicting with the simulator" and task(name).advance:
                continue  # all rows at once in this process: workers have no part in it
            where = "this process" if not count else f"{count} worker{'s' if count > 1 else ''}"
            label = f"{name}, {kind}, {where}"
            try:
                values = run(count)
            except WorldplanError as error:
                lines.append({"case": label, "error": str(error).splitlines()[0]})
            else:
                steps = record.quartiles(values)
                lines.append(record.case(label, repeats, environment_steps_per_second=steps))
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, prints JSON, and writes it where asked."""
    parser = record.parser(__doc__)
    parser.add_argument("--envs", nargs="+", default=list(names()))
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 1, 2], help="0: this process")
    parser.add_argument("--seconds", type=float, default=0.4, help="per repeat")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.seconds, arguments.repeats, arguments.workers = 0.02, 3, arguments.workers[:2]
    torch.set_num_threads(1)
    setting = {
        "rows": ROWS,
        "environment_steps_per_call": CHUNK,
        "image_size": 64,
        "seconds_per_repeat": arguments.seconds,
    }
    sizes = arguments.workers, arguments.seconds, arguments.repeats
    record.finish(
        "envs", arguments, setting, [line for name in arguments.envs for line in measure(name, *sizes)]
    )


if __name__ == "__main__":
    main()
