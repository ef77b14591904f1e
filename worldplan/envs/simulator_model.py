"""The simulator as a world model: planning on the true dynamics, the ceiling of every learned one."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from worldplan.envs.registry import Task
from worldplan.envs.registry import task as named
from worldplan.envs.vector import ask, hire
from worldplan.envs.worker import Crew
from worldplan.errors import UsageError
from worldplan.normalize import Normalizer
from worldplan.protocol import ModelSpec
from worldplan.seeding import Noise
from worldplan.types import Array, Obs, Rollout, State


class SimulatorModel:
    """Predicts by simulating: states go in, exact states come out; nothing is drawn.

    The latent is the simulator's state, float64 ``[s]``. Rows whose actions are not finite are NaN from
    there on. Gradients do not flow.

    Args:
        task: a task with settable states, or its name.
        workers: processes that share the rows; 0 simulates in this one.
        normalizer: gives model units; actions are environment units without one. With that of a learned
            model, both are searched in the same units.

    Raises:
        UsageError: the task's states cannot be set.
    """

    training = False

    def __init__(self, task: str | Task, workers: int = 0, normalizer: Normalizer | None = None) -> None:
        self.task = named(task) if isinstance(task, str) else task
        if not self.task.state_names or self.task.action.choices is not None:
            raise UsageError(
                f"{self.task.name} cannot predict",
                expected="a task whose states can be set, with continuous actions",
                found=f"states {self.task.state_names or 'that cannot be set'}",
            )
        self.normalizer = normalizer
        self._crews: list[Crew] = []
        if self.task.advance is None:
            self._crews, _ = hire(partial(self.task.make, pixels=False), max(workers, 1), workers)

    @property
    def spec(self) -> ModelSpec:
        """One state, no context, no frames."""
        size = len(self.task.state_names)
        return ModelSpec(
            env=self.task.name,
            obs={"state": (size,)},
            context=1,
            frame_skip=self.task.frame_skip,
            action=self.task.action,
            latent_shape=(size,),
            pixels=None,
        )

    def encode(self, obs: Obs, actions: Tensor, valid: Tensor) -> State:
        """The newest of ``obs["state"] [B, C, s]``; the rest is history."""
        return {"state": obs["state"][:, -1].to(torch.float64)}

    def embed(self, obs: Obs) -> Tensor:
        """Latents of observations without time axis: ``obs["state"] [B, s]``."""
        return obs["state"].to(torch.float64)

    @torch.no_grad()
    def predict(self, state: State, actions: Tensor, noise: Noise, steps: Tensor | None = None) -> Rollout:
        """Simulates H model steps ``[B, H, A]``; deterministic, `noise` is not used."""
        count, horizon = actions.shape[:2]
        skip = self.task.frame_skip
        assert actions.shape[2] == self.spec.action_dim, actions.shape
        steps = torch.arange(horizon + 1) if steps is None else steps.cpu()
        units = actions if self.normalizer is None else self.normalizer.unnormalize(actions)
        rows = units.reshape(count, horizon * skip, -1).to("cpu", torch.float64).numpy()
        # the last one is kept too, so that prediction can go on from there
        wanted = np.append(steps.numpy(), horizon) * skip
        kept = torch.from_numpy(self._simulate(state["state"].cpu().numpy(), rows, wanted))
        kept = kept.to(actions.device)
        return Rollout(kept[:, :-1], steps.to(actions.device), actions, final={"state": kept[:, -1]})

    def close(self) -> None:
        """Ends the workers."""
        for crew in self._crews:
            crew.close()
        self._crews = []

    def _simulate(self, states: Array, actions: Array, steps: Array) -> Array:
        if self.task.advance is not None:
            return self._all_at_once(states, actions, steps)
        shares = [share for share in np.array_split(np.arange(len(states)), len(self._crews)) if len(share)]
        args = [(states[share], actions[share], steps) for share in shares]
        return np.concatenate(ask(self._crews[: len(shares)], "simulate", *args))

    def _all_at_once(self, states: Array, actions: Array, steps: Array) -> Array:
        assert self.task.advance is not None
        kept = np.empty((len(states), len(steps), states.shape[1]))
        low, high = self.task.action.low, self.task.action.high
        kept[:, steps == 0] = states[:, None]
        for step in range(1, int(steps.max(initial=0)) + 1):
            action = actions[:, step - 1]
            states = self.task.advance(states, np.clip(action, low, high))
            states[~np.isfinite(action).all(1)] = np.nan
            kept[:, steps == step] = states[:, None]
        return kept
