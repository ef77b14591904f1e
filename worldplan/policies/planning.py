"""Acting by planning: embed what is seen, search for actions whose prediction scores well, run some."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from worldplan import tree
from worldplan.errors import ConfigError, UsageError
from worldplan.seeding import Noise
from worldplan.types import Carry, Objective, Obs, Plan, Planner, WorldModel


@dataclass(frozen=True)
class PlanningPolicy:
    """Model-predictive control: plan H model steps, execute the first of them, plan again.

    With the defaults a plan is executed to its end before the next one is made, from the newest
    frame alone: the protocol of LeWorldModel (25 environment steps per plan at H = 5, k = 5).

    The carry holds the last plan, which seeds the next search (see `planners.space.leftover`), and
    under ``"stats"``, rows B each, what the latest decision took: ``seconds`` (of the whole batch, all
    rows alike), ``model_calls`` (of the whole batch), ``model_steps`` (predicted for that row) and
    ``nan_costs``; and ``decisions``, how many there were.

    Attributes:
        model: predicts; in evaluation mode.
        planner: searches.
        objective: scores; bound to the goals of every observation anew.
        execute: model steps run per plan; None asks the planner (`ShrinkingHorizon` re-plans after
            each), and runs all H where it does not say. The environment must run all the actions that
            `act` returns.
        history: frames given to the model, at most its context. More than 1 needs ``execute=1``, as
            the frames between decisions are not seen. The history holds the actions planned: wrapped
            in a policy that changes them, keep it at 1.
        clock: seconds, monotonic.
        name: for records.
    """

    model: WorldModel
    planner: Planner
    objective: Objective
    execute: int | None = None
    history: int = 1
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False, compare=False)
    name: str = "planning"

    def __post_init__(self) -> None:
        """Refuses settings that contradict each other or the model."""
        horizon = getattr(self.planner, "horizon", None)
        execute = self._execute
        if execute is not None and not 1 <= execute <= (horizon or execute):
            raise _too_many(execute, horizon)
        if not 1 <= self.history <= self.model.spec.context:
            raise ConfigError(
                "the history does not fit the model",
                expected=f"1..{self.model.spec.context} frames, the context it was trained with",
                found=str(self.history),
            )
        if self.history > 1 and (execute or horizon) != 1:
            raise ConfigError(
                "a history needs a decision at every model step",
                expected="execute=1",
                found=f"history={self.history}, execute={execute}",
                fix="execute=1, or history=1",
            )

    @property
    def _execute(self) -> int | None:
        return getattr(self.planner, "execute", None) if self.execute is None else self.execute

    @property
    def requires(self) -> tuple[str, ...]:
        """Keys an observation must have."""
        return tuple(self.model.spec.obs)

    def initial(self, batch_size: int) -> Carry:
        """Nothing seen and nothing planned."""
        count = torch.zeros(batch_size, dtype=torch.int64)
        stats = {name: count for name in ("model_calls", "model_steps", "nan_costs", "decisions")}
        return {
            "plan": {},
            "history": {},
            "stats": {"seconds": torch.zeros(batch_size, dtype=torch.float64), **stats},
        }

    @torch.no_grad()
    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """Plans, and returns the first ``K = k * execute`` environment actions, ``[B, K, a]``.

        Random: whatever the planner and the model draw.

        Raises:
            ConfigError: `obs` carries no goal, or the plan is shorter than `execute`.
            UsageError: `obs` lacks what the model reads, or the model is in training mode.
        """
        began = self.clock()
        self._check(obs)
        history = self._remember(obs, carry["history"])
        state = self.model.encode(history["frames"], history["actions"], self._valid(history["count"]))
        plan = self.planner(self.model, state, self.objective.at(obs), noise, _recall(carry["plan"]))
        execute = self._execute or plan.actions.shape[1]
        if execute > plan.actions.shape[1]:
            raise _too_many(execute, plan.actions.shape[1])
        chosen = plan.actions[:, :execute]
        actions = self._environment_units(chosen)
        plan.cost.sum().item()  # waits for the device, so that the clock tells the truth
        seconds = self.clock() - began
        if self.history > 1:
            done = torch.cat((history["actions"][:, 1:], chosen.to(history["actions"])), 1)
            history = {**history, "actions": done}
        return actions, {
            "plan": _remembered(plan, execute),
            "history": history if self.history > 1 else {},
            "stats": _stats(plan, seconds, carry["stats"]),
        }

    def _check(self, obs: Obs) -> None:
        if getattr(self.model, "training", False):
            raise UsageError(
                "the model plans in training mode",
                expected="a model whose predictions do not depend on the batch",
                found="model.training is True",
                fix="model.eval()",
            )
        if missing := [key for key in self.requires if key not in obs]:
            raise UsageError(
                f"the model reads {', '.join(missing)}, which the observation lacks",
                expected=", ".join(self.requires),
                found=", ".join(sorted(obs)) or "an empty observation",
                fix="build the environment with the modalities of the checkpoint",
            )

    def _remember(self, obs: Obs, history: Mapping[str, Any]) -> dict[str, Any]:
        """The last C frames ``[B, C, ...]`` and the C-1 actions between them, newest last."""
        context = self.model.spec.context
        frame = {key: obs[key][:, None] for key in self.requires}
        if history:
            frames = tree.map(lambda old, new: torch.cat((old[:, 1:], new), 1), history["frames"], frame)
            return {**history, "frames": frames, "count": history["count"] + 1}
        first = next(iter(frame.values()))
        discrete = self.model.spec.action.choices is not None
        shape = (len(first), context - 1, self.model.spec.action_dim)
        dtype = torch.int64 if discrete else torch.float32
        return {
            # frames before the first are never read: `valid` is False there
            "frames": tree.map(lambda new: new.expand(-1, context, *new.shape[2:]), frame),
            "actions": torch.zeros(shape, dtype=dtype, device=first.device),
            "count": torch.ones(len(first), dtype=torch.int64, device=first.device),
        }

    def _valid(self, count: Tensor) -> Tensor:
        """Bool ``[B, C]``: the frames that exist and that the model may see."""
        context = self.model.spec.context
        place = torch.arange(context, device=count.device)
        return place >= context - count.clamp(max=self.history)[:, None]

    def _environment_units(self, chosen: Tensor) -> Tensor:
        """``[B, e, A]`` model units to ``[B, e*k, a]`` environment units, inside the bounds."""
        spec = self.model.spec
        normalizer = getattr(self.model, "normalizer", None)
        if spec.action.choices is None:
            chosen = chosen if normalizer is None else normalizer.unnormalize(chosen)
            chosen = chosen.to(torch.float32)
        return spec.action.project(chosen.reshape(len(chosen), -1, spec.action.dim))


def _remembered(plan: Plan, executed: int) -> dict[str, Any]:
    """What of a plan seeds the next, as tensors with rows B."""
    rows = len(plan.cost)
    trace = {
        key: value
        for key, value in plan.trace.items()
        if isinstance(value, Tensor) and value.ndim and len(value) == rows
    }
    count = torch.full((rows,), executed, dtype=torch.int64, device=plan.actions.device)
    return {"actions": plan.actions, "cost": plan.cost, "trace": {**trace, "executed": count}}


def _recall(plan: Mapping[str, Any]) -> Plan | None:
    """Inverse of `_remembered`; None before the first plan."""
    return Plan(plan["actions"], plan["cost"], trace=plan["trace"]) if plan else None


def _stats(plan: Plan, seconds: float, before: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What this decision took, rows B each; 0 where the planner does not say."""
    zeros = torch.zeros_like(before["decisions"])

    def told(name: str) -> Tensor:
        return zeros + torch.as_tensor(plan.trace.get(name, 0)).to(zeros)

    return {
        "seconds": torch.full_like(before["seconds"], seconds),
        "model_calls": told("model_calls"),
        "model_steps": told("model_steps"),
        "nan_costs": told("nan_costs"),
        "decisions": before["decisions"] + 1,
    }


def _too_many(execute: int, horizon: int | None) -> ConfigError:
    return ConfigError(
        "cannot execute more model steps than are planned",
        expected=f"execute in 1..{horizon}, the planner's horizon",
        found=str(execute),
    )
