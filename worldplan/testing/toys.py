"""A world whose best plan is known, and inputs drawn from a specification."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from worldplan.normalize import Normalizer, Statistics
from worldplan.protocol import ModelSpec
from worldplan.seeding import Noise
from worldplan.types import ActionSpec, Obs, Rollout, State

_MEAN, _STD = 0.1, 0.5  # of the actions it was "trained" on


class DoubleIntegrator:
    r"""A point mass that is pushed: ``p' = p + v dt + u dt**2 / 2``, ``v' = v + u dt``.

    A world model whose latent is its state ``[p, v]``. Actions ``u`` lie in ``[-1, 1]``; model units
    are z-scores of mean 0.1 and deviation 0.5, so a planner that mixes up units or bounds is found
    out. Computed element-wise: no row depends on another, bit for bit.

    Args:
        dim: dimensions of position, velocity and action each.
        frame_skip: pushes per model step.
        dt: seconds per push.
    """

    def __init__(self, dim: int = 2, frame_skip: int = 2, dt: float = 0.2) -> None:
        self.dim, self.dt = dim, dt
        action = ActionSpec(dim, (-1.0,) * dim, (1.0,) * dim, unit="m/s^2")
        size = (2 * dim,)
        self.spec = ModelSpec("double-integrator", {"state": size}, 1, frame_skip, action, size, None)
        self.normalizer = Normalizer(dim)
        self.normalizer.fit(Statistics((_MEAN,) * dim, (_STD,) * dim, 1))

    def encode(self, obs: Obs, actions: Tensor, valid: Tensor) -> State:
        """The newest state is all there is to know."""
        return {"x": obs["state"][:, -1]}

    def embed(self, obs: Obs) -> Tensor:
        """The state ``[B, 2 * dim]`` itself."""
        return obs["state"]

    def predict(self, state: State, actions: Tensor, noise: Noise, steps: Tensor | None = None) -> Rollout:
        """Exact; draws nothing."""
        position, velocity = state["x"][:, : self.dim], state["x"][:, self.dim :]
        pushes = self.normalizer.unnormalize(actions).view(*actions.shape[:2], self.spec.frame_skip, self.dim)
        path = [state["x"]]
        for step in pushes.unbind(1):
            for push in step.unbind(1):
                position = position + velocity * self.dt + push * (self.dt**2 / 2)
                velocity = velocity + push * self.dt
            path.append(torch.cat((position, velocity), -1))
        wanted = torch.arange(len(path), device=actions.device) if steps is None else steps
        latent = torch.stack([path[int(step)] for step in wanted], 1)
        return Rollout(latent, wanted, actions, final={"x": path[-1]})

    def optimum(self, start: Tensor, goal: Tensor, horizon: int, effort: float) -> Tensor:
        """Minimises ``|x_H - goal|**2 + effort * sum |a|**2``, without bounds, in closed form.

        Args:
            start: ``[B, 2 * dim]``.
            goal: ``[B, 2 * dim]``.
            horizon: H, model steps.
            effort: positive.

        Returns:
            ``[B, H, A]`` in model units.
        """
        count, dtype = horizon * self.spec.frame_skip, start.dtype
        left = torch.arange(count - 1, -1, -1, dtype=torch.float64)  # pushes after each push
        reach = torch.stack((self.dt**2 * (left + 0.5), torch.full_like(left, self.dt)))  # [2, count]
        start, goal = (value.double().view(len(value), 2, self.dim) for value in (start, goal))
        drift = torch.stack((start[:, 0] + start[:, 1] * self.dt * count, start[:, 1]), 1)
        missing = goal - drift - _MEAN * reach.sum(1)[:, None]
        gain = _STD * reach
        solve = torch.linalg.solve(gain.T @ gain + effort * torch.eye(count, dtype=torch.float64), gain.T)
        actions = torch.einsum("nr,brd->bnd", solve, missing)
        return actions.reshape(len(start), horizon, -1).to(dtype)


@dataclass(frozen=True, eq=False)
class Reach:
    """``|x_H - goal|**2 + effort * sum |a|**2`` for models whose latent is the state.

    Attributes:
        goal: ``[B, D]``, or None until bound.
        effort: weight of the actions, in model units.
    """

    goal: Tensor | None = None
    effort: float = 0.01

    def __call__(self, rollout: Rollout) -> Tensor:
        """Costs ``[B, N]``."""
        assert self.goal is not None, "the objective is not bound to a goal"
        missed = (rollout.latent[:, :, -1] - self.goal[:, None]).square().sum(-1)
        return missed + self.effort * rollout.actions.square().sum((-1, -2))

    def at(self, obs: Obs) -> Reach:
        """Binds ``goal/state``."""
        return replace(self, goal=obs["goal/state"])

    def select(self, rows: Tensor) -> Reach:
        """Keeps some goals."""
        return self if self.goal is None else replace(self, goal=self.goal[rows])


def random_obs(spec: ModelSpec, noise: Noise, time: int | None = None) -> dict[str, Tensor]:
    """Observations a model of that specification reads: entries ``[B, ...]``, or ``[B, time, ...]``.

    Entries of three axes are images, uniform in uint8; all others are standard normal.
    """
    frames = () if time is None else (time,)
    observation: dict[str, Tensor] = {}
    for key, shape in spec.obs.items():
        here = noise.at("obs", key)
        if len(shape) == 3:
            observation[key] = here.integers(256, *frames, *shape).to(torch.uint8)
        else:
            observation[key] = here.normal(*frames, *shape)
    return observation


def random_actions(spec: ModelSpec, noise: Noise, horizon: int) -> Tensor:
    """Actions ``[B, horizon, A]`` in model units: standard normal, or uniform choices in int64."""
    here = noise.at("actions")
    if spec.action.choices is not None:
        return here.integers(spec.action.choices, horizon, spec.action_dim)
    return here.normal(horizon, spec.action_dim)
