"""Seconds per CEM decision at the paper's setting, for the small and the full-size LeWM.

300 candidates, 30 iterations, 5 model steps of 5 environment steps, one problem at a time: what a
policy waits for. Beside it stand the share of that time spent outside the model, the same search with
a model that computes nothing, and the least time the model's matrix products could take at the rate
this machine multiplies, measured in the same run.

    python benchmarks/planning.py [--quick] [--models small paper] [--threads 1] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from worldplan import tree
from worldplan.models.lewm import LeWM, LeWMConfig
from worldplan.planners.cem import CEM
from worldplan.planners.objectives import LatentGoal
from worldplan.planners.score import Scoring
from worldplan.policies.planning import PlanningPolicy
from worldplan.protocol import ModelSpec
from worldplan.seeding import Noise
from worldplan.types import ActionSpec, Obs, Rollout, State, WorldModel

MODELS = {"small": LeWMConfig(), "paper": LeWMConfig.paper()}
ACTION = ActionSpec(2, (-1.0, -1.0), (1.0, 1.0))


@dataclass
class Timed:
    """A model that knows how long it took and, where asked, how many operations."""

    model: LeWM
    precision: torch.dtype = torch.float32
    seconds: float = 0.0
    flops: FlopCounterMode | None = field(default=None, repr=False)

    @property
    def spec(self) -> ModelSpec:
        return self.model.spec

    @property
    def normalizer(self) -> Any:
        return self.model.normalizer

    def encode(self, obs: Obs, actions: Tensor, valid: Tensor) -> State:
        with self._running():
            return self.model.encode(obs, actions, valid)

    def embed(self, obs: Obs) -> Tensor:
        with self._running():
            return self.model.embed(obs)

    def predict(self, state: State, actions: Tensor, noise: Noise, steps: Tensor | None = None) -> Rollout:
        with self._running():
            return self.model.predict(state, actions, noise, steps)

    @contextmanager
    def _running(self) -> Iterator[None]:
        begun = time.perf_counter()
        with torch.autocast("cpu", self.precision, enabled=self.precision != torch.float32):
            yield
        self.seconds += time.perf_counter() - begun


@dataclass(frozen=True)
class Nothing:
    """A model without arithmetic: what is left is the planner."""

    spec: ModelSpec
    normalizer: Any

    def encode(self, obs: Obs, actions: Tensor, valid: Tensor) -> State:
        return {"z": torch.zeros(len(valid), *self.spec.latent_shape)}

    def embed(self, obs: Obs) -> Tensor:
        return torch.zeros(tree.rows(obs), *self.spec.latent_shape)

    def predict(self, state: State, actions: Tensor, noise: Noise, steps: Tensor | None = None) -> Rollout:
        assert steps is not None
        return Rollout(state["z"][:, None].expand(-1, len(steps), -1), steps, actions)


def build(config: LeWMConfig) -> LeWM:
    """An untrained model of Push-T's kind: its time does not depend on its weights."""
    model = LeWM(config, config.spec("pusht", ACTION)).eval()
    model.fit_statistics(
        {
            "action": np.random.default_rng(0).uniform(-0.4, 0.4, (100, 2)),
            "pixels": np.zeros((2, config.image_size, config.image_size, 3), np.uint8),
        }
    )
    return model


def observe(spec: ModelSpec, problems: int) -> Obs:
    """Frames of noise, with a goal."""
    noise = Noise.of(0, problems)
    seen = {key: noise.at(key).integers(256, *shape).to(torch.uint8) for key, shape in spec.obs.items()}
    return {**seen, **{f"goal/{key}": frames.flip(-1) for key, frames in seen.items()}}


def decide(model: WorldModel, planner: CEM, problems: int, repeats: int) -> list[float]:
    """Seconds of some decisions, after one to warm up."""
    policy = PlanningPolicy(model, planner, LatentGoal(model.embed))  # type: ignore[attr-defined]
    obs, seconds = observe(model.spec, problems), []
    for step in range(repeats + 1):
        if step == 1 and isinstance(model, Timed):
            model.seconds = 0.0
        begun = time.perf_counter()
        policy.act(obs, policy.initial(problems), Noise.of(step, problems))
        seconds.append(time.perf_counter() - begun)
    return seconds[1:]


def operations(model: LeWM, planner: CEM, problems: int) -> float:
    """Floating-point operations in matrix products and convolutions of one decision.

    Counted over one iteration of CEM and the one row that scores its mean, and scaled to all.
    """
    counts = []
    for iterations in (1, 2):
        short = CEM(planner.horizon, planner.num_samples, iterations, planner.num_elites)
        policy = PlanningPolicy(model, short, LatentGoal(model.embed))
        with FlopCounterMode(display=False) as counter:
            policy.act(observe(model.spec, problems), policy.initial(problems), Noise.of(0, problems))
        counts.append(counter.get_total_flops())
    return counts[0] + (counts[1] - counts[0]) * (planner.num_iterations - 1)


def multiply_rates() -> dict[str, float]:
    """GFLOP/s of a matrix product of typical shape, best of what fits into a second, at most 80."""
    rates = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        left, right = torch.ones(900, 192, dtype=dtype), torch.ones(192, 1024, dtype=dtype)
        seconds: list[float] = []
        while len(seconds) < 80 and sum(seconds) < 1:
            begun = time.perf_counter()
            left @ right
            seconds.append(time.perf_counter() - begun)
        rates[name] = round(2 * 900 * 192 * 1024 / min(seconds) / 1e9, 1)
    return rates


def measure(
    model: LeWM, planner: CEM, precision: str, rate: float, problems: int, repeats: int
) -> dict[str, Any]:
    """One model in one precision."""
    timed = Timed(model, torch.bfloat16 if precision == "bf16" else torch.float32)
    seconds = decide(timed, planner, problems, repeats)
    empty = decide(Nothing(model.spec, model.normalizer), planner, problems, max(3, repeats))
    flops = operations(model, planner, problems)
    median = statistics.median(seconds)
    return {
        "precision": precision,
        "problems": problems,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "decisions": len(seconds),
        "seconds_per_decision": round(median, 4),
        "low_high": [round(min(seconds), 4), round(max(seconds), 4)],
        "seconds_per_problem": round(median / problems, 4),
        "share_outside_model": round(1 - timed.seconds / sum(seconds), 4),
        "seconds_without_model": round(statistics.median(empty), 4),
        "tflop_per_decision": round(flops / 1e12, 4),
        "tflops_reached": round(flops / median / 1e12, 4),
        "seconds_bound_by_matrix_products": round(flops / rate / 1e9, 4),
    }


def main() -> None:
    """Measures, prints, and saves where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], help="default: what pays here")
    parser.add_argument("--problems", type=int, default=1, help="problems planned for at once")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5, help="decisions per model and precision")
    parser.add_argument("--rows", type=int, default=Scoring().rows_per_call, help="rows per model call")
    parser.add_argument("--quick", action="store_true", help="one decision of two iterations: a smoke test")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rates = multiply_rates()
    # without bf16 units a CPU emulates it, many times slower than fp32
    pays = ["fp32", "bf16"] if rates["bf16"] > rates["fp32"] else ["fp32"]
    planner = CEM(num_iterations=2 if arguments.quick else 30, scoring=Scoring(arguments.rows))
    repeats = 1 if arguments.quick else arguments.repeats
    result = {
        "benchmark": "planning",
        "setting": {
            "planner": "CEM",
            "samples": planner.num_samples,
            "iterations": planner.num_iterations,
            "model_steps": planner.horizon,
            "environment_steps_per_model_step": MODELS["small"].frame_skip,
            "rows_per_call": arguments.rows,
            "threads": arguments.threads,
        },
        "models": {
            name: [
                measure(build(MODELS[name]), planner, one, rates[one], arguments.problems, repeats)
                for one in arguments.precisions or pays
            ]
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
