"""What planners minimise: costs of predictions, lower is better.

An objective is a frozen dataclass. `at` binds it to the goals an observation carries under
``goal/<key>``, `select` keeps some of the bound goals, and calling it maps a rollout with leading
axes ``[B, N, ...]`` to costs ``[B, N]``. Objectives add up and scale: ``near + 0.1 * tidy``.

An objective that reads more than the last predicted step says so with ``needs_path = True``;
otherwise planners ask the model for the last step alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from worldplan.errors import ConfigError
from worldplan.types import GOAL, Objective, Obs, Rollout


class Additive:
    """Gives an objective ``+`` and ``*``; the other side of a ``+`` may be any objective."""

    def __add__(self: Objective, other: Objective) -> Sum:
        """The sum of two objectives."""
        return Sum.of(self, 1.0).plus(other)

    def __radd__(self: Objective, other: Objective) -> Sum:
        """The sum of two objectives."""
        return Sum.of(other, 1.0).plus(self)

    def __mul__(self: Objective, weight: float) -> Sum:
        """The objective times a number."""
        return Sum.of(self, weight)

    __rmul__ = __mul__


@dataclass(frozen=True)
class Sum(Additive):
    """A weighted sum ``sum_i w_i * objective_i``.

    Attributes:
        parts: the objectives.
        weights: their weights, one each.
    """

    parts: tuple[Objective, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuses a weight too many or too few."""
        if len(self.parts) != len(self.weights) or not self.parts:
            raise ConfigError(
                "a sum of objectives needs one weight for each",
                expected=f"{len(self.parts)} weights and at least one objective",
                found=f"{len(self.weights)} weights",
            )

    @classmethod
    def of(cls, objective: Objective, weight: float) -> Sum:
        """One weighted objective; weights of a sum are multiplied."""
        if isinstance(objective, Sum):
            return cls(objective.parts, tuple(weight * inner for inner in objective.weights))
        return cls((objective,), (weight,))

    def plus(self, other: Objective) -> Sum:
        """This sum and another objective."""
        more = Sum.of(other, 1.0)
        return Sum(self.parts + more.parts, self.weights + more.weights)

    @property
    def needs_path(self) -> bool:
        """True where any part reads the whole path."""
        return any(getattr(part, "needs_path", False) for part in self.parts)

    def __call__(self, rollout: Rollout) -> Tensor:
        """Costs ``[B, N]``."""
        return torch.stack(list(self.terms(rollout).values())).sum(0)

    def terms(self, rollout: Rollout) -> Mapping[str, Tensor]:
        """Weighted costs ``[B, N]`` by position and name, e.g. ``"0 LatentGoal"``."""
        return {
            f"{place} {type(part).__name__}": weight * part(rollout)
            for place, (part, weight) in enumerate(zip(self.parts, self.weights, strict=True))
        }

    def at(self, obs: Obs) -> Sum:
        """Binds every part."""
        return replace(self, parts=tuple(part.at(obs) for part in self.parts))

    def select(self, rows: Tensor) -> Sum:
        """Keeps some bound goals of every part."""
        return replace(self, parts=tuple(part.select(rows) for part in self.parts))


@dataclass(frozen=True, eq=False)
class LatentGoal(Additive):
    """Squared distance of the last predicted latent to the goal's.

    ``cost = sum_d (z_H[d] - z_goal[d])**2`` (LeWorldModel, as in its planning code).

    Attributes:
        embed: maps an observation without time axis to its latent ``[B, ...]``; `embed` of the
            model that plans.
        goal: ``[B, ...]`` latents, set by `at`.
    """

    embed: Callable[[Obs], Tensor]
    goal: Tensor | None = None

    needs_path = False

    def __call__(self, rollout: Rollout) -> Tensor:
        """Costs ``[B, N]``.

        Raises:
            ConfigError: no goal is bound.
        """
        goal = _bound(self.goal, "LatentGoal")
        last = rollout.latent[:, :, -1]  # [B, N, ...]
        assert last.shape[2:] == goal.shape[1:], (last.shape, goal.shape)
        return (last - goal[:, None]).square().flatten(2).sum(2)

    def at(self, obs: Obs) -> LatentGoal:
        """Embeds the entries ``goal/<key>``; raises `ConfigError` where there is none."""
        return replace(self, goal=self.embed(goal_of(obs)))

    def select(self, rows: Tensor) -> LatentGoal:
        """Keeps some bound goals."""
        goal = _bound(self.goal, "LatentGoal")
        return replace(self, goal=goal[rows.to(goal.device)])


@dataclass(frozen=True, eq=False)
class StateGoal(Additive):
    """Weighted squared distance of a predicted simulator state to the goal's.

    ``cost = sum_i w_i * d_i**2``, where ``d_i`` is the difference of entry i, wrapped to
    ``[-pi, pi)`` for angles.

    Attributes:
        read: maps latents ``[M, ...]`` to states ``[M, s]``; the identity for models whose latent
            is the state, a probe for others.
        weights: ``w [s]``, in 1 / unit of the state squared; 0 ignores an entry.
        angles: which entries are angles in radians.
        path: ``"last"`` scores the last predicted step, ``"min"`` the best step after the start,
            for tasks that succeed on touching the goal.
        key: the goal is ``obs["goal/<key>"] [B, s]``.
        embed: where the goal is only seen: it is then ``read(embed(goal observation))``.
        goal: ``[B, s]``, set by `at`.
    """

    read: Callable[[Tensor], Tensor]
    weights: tuple[float, ...]
    angles: tuple[int, ...] = ()
    path: Literal["last", "min"] = "last"
    key: str = "state"
    embed: Callable[[Obs], Tensor] | None = None
    goal: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuses paths and angles that do not exist."""
        if self.path not in ("last", "min"):
            raise ConfigError("unknown path of StateGoal", expected="last or min", found=repr(self.path))
        if any(not 0 <= index < len(self.weights) for index in self.angles):
            raise ConfigError(
                "an angle of StateGoal lies outside the state",
                expected=f"indices in 0..{len(self.weights) - 1}, as there are {len(self.weights)} weights",
                found=str(self.angles),
            )

    @property
    def needs_path(self) -> bool:
        """True for the best step of the path."""
        return self.path == "min"

    def __call__(self, rollout: Rollout) -> Tensor:
        """Costs ``[B, N]``.

        Raises:
            ConfigError: no goal is bound.
        """
        goal = _bound(self.goal, "StateGoal")
        latent = rollout.latent[:, :, rollout.steps > 0] if self.needs_path else rollout.latent[:, :, -1:]
        state = self.read(latent.flatten(0, 2))
        state = state.reshape(*latent.shape[:3], state.shape[-1])  # [B, N, S, s]
        return squared_distance(state, goal[:, None, None], self.weights, self.angles).amin(2)

    def at(self, obs: Obs) -> StateGoal:
        """Reads the goal's state.

        Raises:
            ConfigError: the observation carries no such goal, or one of another size.
        """
        goals = goal_of(obs)
        if self.embed is not None:
            goal = self.read(self.embed(goals))
        elif self.key in goals:
            goal = goals[self.key]
        else:
            raise _no_goal(f"{GOAL}{self.key}", obs)
        if goal.shape[-1] != len(self.weights):
            raise ConfigError(
                "the goal's state does not fit StateGoal",
                expected=f"{len(self.weights)} entries, one per weight",
                found=f"{goal.shape[-1]} in {GOAL}{self.key}",
            )
        return replace(self, goal=goal)

    def select(self, rows: Tensor) -> StateGoal:
        """Keeps some bound goals."""
        goal = _bound(self.goal, "StateGoal")
        return replace(self, goal=goal[rows.to(goal.device)])


@dataclass(frozen=True, eq=False)
class SelfConsistency(Additive):
    """Squared distance of the last predicted latent to where a detour ends.

    ``cost = sum_d (z_H[d] - jump(z_m, a_m..H-1)[d])**2``: a model that jumps over all H actions at once
    should end where it ends by way of the latent it predicts after the first m of them (Fast-LeWorldModel).
    Needs no goal, and is 0 for plans of a single step.

    Attributes:
        jump: maps latents ``[M, D]`` and actions ``[M, h, A]`` to the latents ``[M, D]`` after them; that
            of the model that plans.
        first: m, model steps before the detour goes on; None takes half of H, rounded down.
    """

    jump: Callable[[Tensor, Tensor], Tensor]
    first: int | None = None

    needs_path = True

    def __post_init__(self) -> None:
        """Refuses a detour that begins where the plan begins."""
        if self.first is not None and self.first < 1:
            raise ConfigError(
                "first of SelfConsistency is out of range",
                expected="at least 1, or None",
                found=str(self.first),
            )

    def __call__(self, rollout: Rollout) -> Tensor:
        """Costs ``[B, N]``.

        Raises:
            ConfigError: the detour begins after the plan ends.
        """
        problems, count, horizon, _ = rollout.actions.shape
        first = horizon // 2 if self.first is None else self.first
        if first > horizon:
            raise ConfigError(
                "the detour of SelfConsistency begins after the plan ends",
                expected=f"first of at most {horizon}, the horizon",
                found=str(first),
            )
        if first in (0, horizon):
            return rollout.latent.new_zeros(problems, count)
        assert len(rollout.steps) == horizon + 1, "the whole path is needed"
        begin, rest = rollout.latent[:, :, first], rollout.actions[:, :, first:]
        end = self.jump(begin.flatten(0, 1), rest.flatten(0, 1)).view_as(begin)
        return (rollout.latent[:, :, -1] - end).square().flatten(2).sum(2)

    def at(self, obs: Obs) -> SelfConsistency:
        """Itself: there is no goal to bind."""
        return self

    def select(self, rows: Tensor) -> SelfConsistency:
        """Itself."""
        return self


def squared_distance(
    state: Tensor, goal: Tensor, weights: Sequence[float], angles: Sequence[int] = ()
) -> Tensor:
    """``sum_i w_i * d_i**2`` of states ``[..., s]``, as `StateGoal` has it.

    Args:
        state: ``[..., s]``.
        goal: of a shape that broadcasts with `state`.
        weights: ``w [s]``.
        angles: which entries are angles in radians; their difference is taken the short way.
    """
    assert state.shape[-1] == goal.shape[-1] == len(weights), (state.shape, goal.shape)
    difference = state - goal
    angular = torch.zeros(len(weights), dtype=torch.bool, device=state.device)
    angular[list(angles)] = True
    wrapped = (difference + math.pi).remainder(2 * math.pi) - math.pi
    difference = torch.where(angular, wrapped, difference)
    return (difference.square() * difference.new_tensor(weights)).sum(-1)


def goal_of(obs: Obs) -> dict[str, Tensor]:
    """The goal an observation carries, with the prefix taken off its keys.

    Raises:
        ConfigError: it carries none.
    """
    goals = {key.removeprefix(GOAL): value for key, value in obs.items() if key.startswith(GOAL)}
    if not goals:
        raise _no_goal(f"{GOAL}<key>", obs)
    return goals


def _bound(goal: Tensor | None, name: str) -> Tensor:
    if goal is None:
        raise ConfigError(
            f"{name} was asked for a cost before it knew a goal",
            expected="an objective bound to an observation",
            found="an unbound objective",
            fix="objective.at(obs), where obs has goal/... entries",
        )
    return goal


def _no_goal(expected: str, obs: Obs) -> ConfigError:
    return ConfigError(
        "cannot plan without a goal",
        expected=f"an observation with {expected}",
        found=f"the keys {', '.join(sorted(obs)) or '(none)'}",
        fix="give the environment a goal: reset(options={'goal': ...}), or starts that have one",
    )
