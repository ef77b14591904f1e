"""The space planners search: its bounds, where a search begins, and the type of its numbers.

Planners work in the *model units* of the model they plan with, so the bounds of the environment's
actions are carried through the model's normaliser. A search begins at the actions that an earlier
plan had left over, or at zero, which in z-scores is the mean action of the training data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from worldplan import tree
from worldplan.errors import ConfigError
from worldplan.types import Plan, State, WorldModel


@dataclass(frozen=True)
class Space:
    """Continuous action sequences of H steps for B problems.

    Attributes:
        low: ``[A]`` lower bounds in model units, ``-inf`` where there is none.
        high: ``[A]`` upper bounds in model units, ``inf`` where there is none.
        centre: ``[B, H, A]`` where the search begins; inside the bounds.
    """

    low: Tensor
    high: Tensor
    centre: Tensor

    def clamp(self, actions: Tensor) -> Tensor:
        """Moves ``[..., A]`` actions inside the bounds."""
        return actions.clamp(self.low, self.high)


def action_bounds(model: WorldModel) -> tuple[Tensor, Tensor]:
    """Bounds ``(low [A], high [A])`` of one model step in model units.

    Goes through ``model.normalizer`` where there is one; unbounded actions give infinities.

    Raises:
        ConfigError: the model takes discrete actions.
    """
    spec = model.spec
    if spec.action.choices is not None:
        raise ConfigError(
            "discrete actions have no bounds",
            expected="a model with continuous actions",
            found=f"{spec.action.choices} choices in {spec.env}",
        )
    if not spec.action.low:
        unbounded = torch.full((spec.action_dim,), math.inf)
        return -unbounded, unbounded
    normalizer = getattr(model, "normalizer", None)
    if normalizer is not None:
        low, high = normalizer.bounds(spec.action, spec.frame_skip)
        return low, high
    low = torch.tensor(spec.action.low).repeat(spec.frame_skip)
    high = torch.tensor(spec.action.high).repeat(spec.frame_skip)
    return low, high


def continuous_space(
    planner: str, model: WorldModel, state: State, horizon: int, init: Plan | None = None
) -> Space:
    """The space a planner for continuous actions searches.

    Device and dtype follow the floating leaves of `state`, with at least float32: the statistics of
    a search do not survive half precision.

    Args:
        planner: name of the asking planner, for the message.
        model: gives bounds and sizes.
        state: rows B.
        horizon: H.
        init: an earlier plan to continue, see `leftover`.

    Raises:
        ConfigError: the model takes discrete actions.
    """
    if model.spec.action.choices is not None:
        raise ConfigError(
            f"{planner} searches continuous actions",
            expected="a model with continuous actions",
            found=f"{model.spec.action.choices} choices in {model.spec.env}",
            fix="wait for categorical CEM or tree search; this version plans continuous actions only",
        )
    low, high = (bound.to(like(state)) for bound in action_bounds(model))
    shape = (tree.rows(state), horizon, model.spec.action_dim)
    centre = low.new_zeros(shape) if init is None else leftover(init, shape).to(low)
    return Space(low, high, centre.clamp(low, high))


def like(state: State) -> Tensor:
    """An empty tensor of the device and dtype in which to search for `state`."""
    found = [leaf for leaf in tree.leaves(state) if leaf.is_floating_point()]
    device = (found or tree.leaves(state))[0].device
    dtype = torch.float64 if any(leaf.dtype == torch.float64 for leaf in found) else torch.float32
    return torch.empty(0, device=device, dtype=dtype)


def leftover(init: Plan, shape: tuple[int, int, int]) -> Tensor:
    """What an earlier plan had not executed yet, followed by zeros.

    ``init.trace["executed"]`` is the number of leading model steps that were executed since, an
    integer or int64 ``[B]``; 0 where it is missing. Step h of the result is step ``h + executed`` of
    `init`, so a plan that was executed to its end leaves nothing but zeros.

    Args:
        init: actions ``[B, H0, A]``.
        shape: the ``(B, H, A)`` wanted.

    Raises:
        ConfigError: `init` belongs to other problems or to another action space.
    """
    batch_size, horizon, dim = shape
    actions = init.actions
    if actions.ndim != 3 or actions.shape[0] != batch_size or actions.shape[2] != dim:
        raise ConfigError(
            "the plan to start from does not fit",
            expected=f"actions [{batch_size}, steps, {dim}]",
            found=str(list(actions.shape)),
            fix="start without a plan where the batch or the model changed",
        )
    executed = torch.as_tensor(init.trace.get("executed", 0), device=actions.device).expand(batch_size)
    index = torch.arange(horizon, device=actions.device) + executed[:, None]
    left = index < actions.shape[1]
    rows = torch.arange(batch_size, device=actions.device)[:, None]
    kept = actions[rows, index.clamp(max=actions.shape[1] - 1)]
    return torch.where(left[..., None], kept, 0.0)
