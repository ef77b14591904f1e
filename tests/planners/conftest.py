"""A world whose best plan is known in closed form: the latent adds up its actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from worldplan import tree
from worldplan.planners.objectives import Additive, LatentGoal, Sum
from worldplan.protocol import ModelSpec
from worldplan.seeding import Noise
from worldplan.types import ActionSpec, Obs, Rollout, State


@dataclass
class Adder:
    """``z_{t+1} = z_t + a_t (+ std * noise)``, element-wise and so exact in any batch."""

    spec: ModelSpec
    std: float = 0.0
    normalizer: Any = None
    seen: list[tuple[int, list[int] | None]] = field(default_factory=list)

    def encode(self, obs: Obs, actions: Tensor, valid: Tensor) -> State:
        return {"z": obs["z"][:, -1]}

    def predict(self, state: State, actions: Tensor, noise: Noise, steps: Tensor | None = None) -> Rollout:
        self.seen.append((len(actions), None if steps is None else steps.tolist()))
        z, horizon = state["z"], actions.shape[1]
        path = torch.cat((z[:, None], z[:, None] + actions.cumsum(1)), 1)
        if self.std:
            path = path + self.std * noise.normal(*path.shape[1:], dtype=path.dtype)
        steps = torch.arange(horizon + 1) if steps is None else steps
        return Rollout(path[:, steps], steps, actions, final={"z": path[:, -1]})

    def embed(self, obs: Obs) -> Tensor:
        return obs["z"]


@dataclass(frozen=True, eq=False)
class Effort(Additive):
    """``r * sum_h |a_h|**2``."""

    r: float

    def __call__(self, rollout: Rollout) -> Tensor:
        return self.r * rollout.actions.square().sum((2, 3))

    def at(self, obs: Obs) -> Effort:
        return self

    def select(self, rows: Tensor) -> Effort:
        return self


@dataclass(frozen=True)
class World:
    """Problems, and the answer to them."""

    model: Adder
    state: State
    goal: Tensor
    noise: Noise
    r: float = 0.5

    @property
    def objective(self) -> Sum:
        return LatentGoal(self.model.embed, self.goal) + Effort(self.r)

    def optimum(self, horizon: int) -> Tensor:
        """Minimiser ``[B, H, A]`` of ``|z + sum_h a_h - goal|**2 + r sum_h |a_h|**2``."""
        step = (self.goal - self.state["z"]) / (horizon + self.r)
        return step[:, None].expand(-1, horizon, -1)

    def row(self, index: int) -> World:
        keep = torch.tensor([index])
        return World(
            self.model, tree.select(self.state, keep), self.goal[keep], self.noise.select(keep), self.r
        )


def make_world(batch_size: int = 3, std: float = 0.0, bound: float | None = None, **kwargs: Any) -> World:
    action = ActionSpec(1, (-bound,), (bound,)) if bound else ActionSpec(1)
    spec = ModelSpec("adder", {"z": (2,)}, 1, 2, action, (2,), None)
    draws = Noise.of(5, batch_size)
    return World(
        Adder(spec, std, **kwargs),
        {"z": draws.at("z").normal(2, dtype=torch.float64)},
        draws.at("goal").normal(2, dtype=torch.float64),
        Noise.of(0, [11, 7, 2**40][:batch_size] if batch_size <= 3 else batch_size),
    )


@pytest.fixture
def world() -> Any:
    """The function that makes problems."""
    return make_world
