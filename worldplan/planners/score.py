"""What a candidate costs: the one place where planners meet models and objectives.

Models see flat rows, objectives see ``[B, N, ...]``. `score` folds and unfolds, asks the model only
for the futures the objective reads, keeps every model call under a number of rows, and folds several
samples of a stochastic model (or members of an ensemble) into one cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from worldplan import tree
from worldplan.errors import UsageError
from worldplan.planners.settings import check
from worldplan.seeding import Noise
from worldplan.types import Objective, Rollout, State, WorldModel


@dataclass(frozen=True)
class Scoring:
    """How candidates are scored.

    Attributes:
        rows_per_call: most rows the model is given at once; bounds memory and changes no result.
            None gives it everything.
        samples: S, futures drawn per candidate; more than 1 is of use to stochastic models only.
        risk: how the S costs become one: ``"mean"``; ``"std"``, mean + risk_weight * std; ``"cvar"``,
            the mean of the worst ``risk_tail`` of them.
        risk_weight: beta of ``"std"``; positive avoids uncertain candidates, negative seeks them.
        risk_tail: alpha of ``"cvar"``, in (0, 1]; ceil(alpha * S) samples are kept.
    """

    rows_per_call: int | None = 4096
    samples: int = 1
    risk: Literal["mean", "std", "cvar"] = "mean"
    risk_weight: float = 1.0
    risk_tail: float = 0.25

    def __post_init__(self) -> None:
        """Refuses settings that cannot be meant."""
        check(
            self,
            rows_per_call=(self.rows_per_call is None or self.rows_per_call >= 1, "at least 1, or None"),
            samples=(self.samples >= 1, "at least 1"),
            risk=(self.risk in ("mean", "std", "cvar"), "mean, std or cvar"),
            risk_tail=(0 < self.risk_tail <= 1, "in (0, 1]"),
        )

    def fold(self, cost: Tensor) -> Tensor:
        """Folds ``[..., S]`` costs of one candidate into ``[...]``."""
        if self.samples == 1:
            return cost[..., 0]
        if self.risk == "mean":
            return cost.mean(-1)
        if self.risk == "std":
            return cost.mean(-1) + self.risk_weight * cost.std(-1)
        worst = math.ceil(self.risk_tail * self.samples)
        return cost.sort(-1, descending=True).values[..., :worst].mean(-1)


@dataclass(frozen=True)
class Scores:
    """Costs, and what they took.

    Attributes:
        cost: ``[B, N]``; ``inf`` where the objective gave NaN.
        nan: int64 ``[B]``, candidates whose cost was NaN.
        calls: number of calls of the model.
        steps: model steps predicted per problem: candidates * samples * H.
    """

    cost: Tensor
    nan: Tensor
    calls: int
    steps: int


def score(
    model: WorldModel,
    state: State,
    objective: Objective,
    actions: Tensor,
    noise: Noise,
    scoring: Scoring | None = None,
) -> Scores:
    """Scores N candidate action sequences for each of B problems.

    The gradient flows from costs to `actions` where the model allows it.

    Args:
        model: predicts rows independently of each other.
        state: rows B.
        objective: bound to the goals of the B problems.
        actions: ``[B, N, H, A]`` model units.
        noise: rows B; each candidate and sample draws on its own. Consumed by stochastic models.
        scoring: memory and risk; the default where None.

    Raises:
        UsageError: the objective returns costs of another shape than ``[B, N]``.
    """
    scoring = scoring or Scoring()
    assert actions.ndim == 4, actions.shape
    batch_size, count, horizon, _ = actions.shape
    found = (tree.rows(state), noise.batch_size)
    assert found == (batch_size, batch_size), (found, actions.shape)
    samples = scoring.samples
    copies = noise.at("model").split(count * samples)
    costs, calls = [], 0
    for problems, candidates in _chunks(batch_size, count, samples, scoring.rows_per_call):
        chunk = actions[problems, candidates]
        index = torch.arange(problems.start, problems.stop, device=actions.device)
        here = objective if len(index) == batch_size else objective.select(index)
        draws = copies.select(_flat(copies, problems, candidates, count, samples))
        costs.append(_cost(model, tree.select(state, index), here, chunk, draws, samples))
        calls += 1
    raw = _assemble(costs, batch_size, count, samples)
    invalid = raw.isnan().any(-1)
    cost = scoring.fold(raw)
    cost = torch.where(invalid | cost.isnan(), math.inf, cost)
    return Scores(cost, invalid.sum(1), calls, count * samples * horizon)


def _chunks(
    batch_size: int, count: int, samples: int, rows_per_call: int | None
) -> list[tuple[slice, slice]]:
    """Cuts ``[B, N]`` into blocks of at most `rows_per_call` rows: whole problems where they fit."""
    limit = rows_per_call or batch_size * count * samples
    problems = max(1, limit // (count * samples))
    candidates = count if count * samples <= limit else max(1, limit // samples)
    return [
        (slice(b, min(b + problems, batch_size)), slice(n, min(n + candidates, count)))
        for b in range(0, batch_size, problems)
        for n in range(0, count, candidates)
    ]


def _flat(copies: Noise, problems: slice, candidates: slice, count: int, samples: int) -> Tensor:
    """Row numbers, among ``B * N * S``, of one block."""
    index = torch.arange(copies.batch_size, device=copies.rows.device)
    return index.view(-1, count, samples)[problems, candidates].flatten()


def _cost(
    model: WorldModel, state: State, objective: Objective, actions: Tensor, noise: Noise, samples: int
) -> Tensor:
    """Costs ``[b, n, S]`` of one block of candidates ``[b, n, H, A]``."""
    b, n, horizon, dim = actions.shape
    rows = actions.repeat_interleave(samples, 1).view(b * n * samples, horizon, dim)
    needs_path = getattr(objective, "needs_path", False)
    steps = None if needs_path else torch.tensor([horizon], device=actions.device)
    rollout = model.predict(tree.repeat(state, n * samples), rows, noise, steps)
    cost = objective(_unfold(rollout, b, n * samples))
    if cost.shape != (b, n * samples):
        raise UsageError(
            f"the objective {type(objective).__name__} returned costs of another shape",
            expected=f"[problems, candidates] = [{b}, {n * samples}]",
            found=str(list(cost.shape)),
            fix="reduce every axis after the first two",
        )
    return cost.view(b, n, samples)


def _unfold(rollout: Rollout, problems: int, candidates: int) -> Rollout:
    """Gives every field of a flat rollout the leading axes ``[B, N]``; the final state is dropped."""

    def split(value: Tensor) -> Tensor:
        return value.reshape(problems, candidates, *value.shape[1:])

    return replace(
        rollout,
        latent=split(rollout.latent),
        actions=split(rollout.actions),
        reward=None if rollout.reward is None else split(rollout.reward),
        discount=None if rollout.discount is None else split(rollout.discount),
        uncertainty=None if rollout.uncertainty is None else split(rollout.uncertainty),
        final=None,
    )


def _assemble(costs: list[Tensor], batch_size: int, count: int, samples: int) -> Tensor:
    """Joins blocks, in the order of `_chunks`, to ``[B, N, S]``."""
    if len(costs) == 1:
        return costs[0]
    return torch.cat([cost.flatten() for cost in costs]).view(batch_size, count, samples)
