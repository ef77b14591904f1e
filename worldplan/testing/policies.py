"""The contract of a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from worldplan import tree
from worldplan.seeding import Noise
from worldplan.testing.contracts import (
    copied,
    evaluating,
    require,
    require_close,
    require_rows,
    require_same,
    untouched_generators,
)
from worldplan.types import ActionSpec, Carry, Obs, Policy


def check_policy(
    policy: Policy,
    obs: Obs,
    *,
    action: ActionSpec | None = None,
    starts: Sequence[int] | None = None,
    steps: int = 3,
    atol: float = 1e-4,
    seed: int = 0,
) -> tuple[str, ...]:
    """Checks that `policy` acts on batches, keeps nothing, and draws from its noise only.

    Args:
        policy: any implementation of `types.Policy`.
        obs: entries ``[B, ...]`` with B of 2 or more, shown at every step.
        action: what actions of the environment must be; None does not ask.
        starts: seeds of the B starts, for policies that look them up, such as replay; None takes any.
        steps: decisions per episode.
        atol: what batch mates may change, relative to ``max(1, |action|)``.
        seed: of the noise.

    Returns:
        The contracts that were exercised.

    Raises:
        AssertionError: one of them is broken.
    """
    rows = tree.rows(obs)
    require(rows >= 2, "the observation to check a policy on has rows", "2 or more", rows)
    seeds = [3, *range(2**40, 2**40 + rows - 1)] if starts is None else list(starts)
    require(len(seeds) == rows, "every row has a start", rows, len(seeds))
    noise = Noise.of(seed, seeds).at("policy")
    with evaluating(policy), torch.no_grad():
        _check_shapes(policy, obs, noise, action)
        _check_purity(policy, obs, noise)
        _check_batch(policy, obs, noise, steps, atol)
    return ("shapes", "purity", "batch", *(("bounds",) if action else ()))


def _check_shapes(policy: Policy, obs: Obs, noise: Noise, action: ActionSpec | None) -> None:
    rows = tree.rows(obs)
    carry = policy.initial(rows)
    _require_carry(carry, rows)
    actions, after = policy.act(obs, carry, noise.at(0))
    _require_carry(after, rows)
    _require_carry(policy.initial(1), 1)
    contract = "act returns actions [B, K, a] with K of 1 or more"
    is_chunk = isinstance(actions, Tensor) and actions.ndim == 3
    found = list(actions.shape) if isinstance(actions, Tensor) else type(actions).__name__
    require(
        is_chunk and actions.shape[0] == rows and actions.shape[1] >= 1, contract, f"[{rows}, K, a]", found
    )
    require(bool(actions.isfinite().all()), "actions are finite", "finite", actions)
    if action is not None:
        require(actions.shape[2] == action.dim, "actions have the environment's size", action.dim, found)
        off = float((action.project(actions) - actions).abs().max())
        require(off <= 1e-5, "actions keep the environment's bounds", "inside", f"outside by up to {off:g}")


def _require_carry(carry: Carry, rows: int) -> None:
    require(isinstance(carry, Mapping), "a carry is a mapping", "a mapping", type(carry).__name__)
    require_rows(carry, rows, "every tensor of a carry has one row per episode")


def _check_purity(policy: Policy, obs: Obs, noise: Noise) -> None:
    """From the second decision on, as the first often has nothing to spoil."""
    rows = tree.rows(obs)
    with untouched_generators("the policy"):
        _, carry = policy.act(obs, policy.initial(rows), noise.at(0))
        before = copied({"carry": carry, "obs": obs})
        first, _ = policy.act(obs, carry, noise.at(1))
        require_same({"carry": carry, "obs": obs}, before, "act leaves its observation and carry alone")
        again, _ = policy.act(obs, carry, noise.at(1))
    require_close(again, first, 0.0, "act gives the same answer to the same observation, carry and noise")
    fresh = _episode(policy, obs, noise, 2)
    contract = "a new episode starts from initial() and nothing else"
    require_close(fresh[1], first, 0.0, contract)


def _check_batch(policy: Policy, obs: Obs, noise: Noise, steps: int, atol: float) -> None:
    rows = tree.rows(obs)
    together = _episode(policy, obs, noise, steps)
    contract = "an episode does not depend on the episodes beside it"
    for order in (list(range(rows))[::-1], [0], [rows - 1]):
        index = torch.tensor(order)
        part = _episode(policy, tree.select(obs, index), noise.select(index), steps)
        for here, full in zip(part, together, strict=True):
            require_close(here, full[index], atol, contract)


def _episode(policy: Policy, obs: Obs, noise: Noise, steps: int) -> list[Tensor]:
    carry, actions = policy.initial(tree.rows(obs)), []
    for step in range(steps):
        chosen, carry = policy.act(obs, carry, noise.at(step))
        actions.append(chosen)
    return actions
