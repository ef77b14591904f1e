"""Seconds per CEM decision at the paper's setting, for the small and the full-size LeWM.

300 candidates, 30 iterations, 5 model steps of 5 environment steps, one problem at a time: what a
policy waits for. Beside it stand the share of that time spent outside the model, the same search with
a model that computes nothing, and the least time the model's matrix products could take at the rate
this machine multiplies, measured in the same run.

Where one decision of all iterations would not fit into `--seconds`, the search is measured with as many
iterations as do, and its line says how many: nothing is extrapolated.

    python -m benchmarks.planning [--quick] [--models small paper] [--threads 1] [--out FILE.json]
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import machine, record
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
    """A model that knows how long it took."""

    model: LeWM
    precision: torch.dtype = torch.float32
    seconds: float = 0.0

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


def decide(model: WorldModel, planner: CEM, problems: int, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of some decisions, and the share of each that was spent outside the model."""
    policy = PlanningPolicy(model, planner, LatentGoal(model.embed))  # type: ignore[attr-defined]
    obs = observe(model.spec, problems)
    seconds, outside = [], []
    for step in range(repeats):
        if isinstance(model, Timed):
            model.seconds = 0.0
        begun = time.perf_counter()
        policy.act(obs, policy.initial(problems), Noise.of(step, problems))
        seconds.append(time.perf_counter() - begun)
        outside.append(1 - model.seconds / seconds[-1] if isinstance(model, Timed) else 1.0)
    return seconds, outside


def affordable(model: WorldModel, planner: CEM, problems: int, repeats: int, limit: float) -> tuple[CEM, int]:
    """The search and the number of decisions that fit into the seconds; all iterations come first.

    Judged by two short searches, which also warm up.
    """
    taken = []
    for iterations in (1, 2):
        short = replace(planner, num_iterations=iterations)
        taken.append(min(decide(model, short, problems, 2)[0]))
    each = max(taken[1] - taken[0], taken[1] / 3)
    whole = taken[0] + each * (planner.num_iterations - 1)
    if whole <= limit:
        return planner, max(1, min(repeats, int(limit / whole)))
    fitting = max(1, min(planner.num_iterations, int(limit / each)))
    return replace(planner, num_iterations=fitting), 1


def operations(model: LeWM, planner: CEM, problems: int) -> float:
    """Floating-point operations in matrix products and convolutions of one decision.

    Counted over one iteration of CEM and the one row that scores its mean, and scaled to all.
    """
    counts = []
    for iterations in (1, 2):
        short = replace(planner, num_iterations=iterations)
        policy = PlanningPolicy(model, short, LatentGoal(model.embed))
        with FlopCounterMode(display=False) as counter:
            policy.act(observe(model.spec, problems), policy.initial(problems), Noise.of(0, problems))
        counts.append(counter.get_total_flops())
    return float(counts[0] + (counts[1] - counts[0]) * (planner.num_iterations - 1))


def measure(
    name: str, model: LeWM, planner: CEM, precision: str, rate: float, options: Any
) -> dict[str, Any]:
    """One model in one precision."""
    timed = Timed(model, torch.bfloat16 if precision == "bf16" else torch.float32)
    problems = options.problems
    used, repeats = affordable(timed, planner, problems, options.repeats, options.seconds)
    seconds, outside = decide(timed, used, problems, repeats)
    empty, _ = decide(Nothing(model.spec, model.normalizer), used, problems, 1 + max(3, repeats))
    flops = operations(model, used, problems)
    cut = used.num_iterations < planner.num_iterations
    iterations = f"{used.num_iterations}{f' of {planner.num_iterations}' if cut else ''} iterations"
    return record.case(
        f"{name}, {precision}, {iterations}",
        len(seconds),
        seconds_per_decision=record.quartiles(seconds),
        share_outside_the_model=record.quartiles(outside),
        seconds_with_a_model_that_computes_nothing=record.quartiles(empty[1:]),
        bound_by_matrix_products_in_seconds=record.digits(flops / rate / 1e9),
        TFLOP_per_decision=record.digits(flops / 1e12),
        million_parameters=record.digits(sum(each.numel() for each in model.parameters()) / 1e6, 3),
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, prints, and saves where asked."""
    parser = record.parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], help="default: what pays here")
    parser.add_argument("--problems", type=int, default=1, help="problems planned for at once")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7, help="most decisions per model and precision")
    parser.add_argument("--seconds", type=float, default=600.0, help="per model and precision")
    parser.add_argument("--rows", type=int, default=Scoring().rows_per_call, help="rows per model call")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    planner = CEM(scoring=Scoring(options.rows))
    if options.quick:
        planner = replace(planner, num_samples=32, num_iterations=2)
        options.repeats, options.models = 2, options.models[:1]
    rates = machine.multiply_rates()
    cases = [
        measure(name, build(MODELS[name]), planner, precision, rates[precision], options)
        for name in options.models
        for precision in options.precisions or machine.precisions_that_pay(rates)
    ]
    setting = {
        "planner": "CEM",
        "samples": planner.num_samples,
        "iterations": planner.num_iterations,
        "model_steps": planner.horizon,
        "environment_steps_per_model_step": MODELS["small"].frame_skip,
        "problems_at_once": options.problems,
        "rows_per_call": options.rows,
        "matrix_product_GFLOP/s": rates,
    }
    record.finish("planning", options, setting, cases)


if __name__ == "__main__":
    main()
