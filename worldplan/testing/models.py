"""The contract of a world model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from worldplan import tree
from worldplan.protocol import ModelSpec
from worldplan.seeding import Noise
from worldplan.testing.contracts import (
    copied,
    evaluating,
    require,
    require_close,
    require_rows,
    require_same,
    require_shape,
    untouched_generators,
)
from worldplan.testing.toys import random_actions, random_obs
from worldplan.types import Obs, Rollout, State, WorldModel

_ROWS = (3, 2**40 + 1, 7)


def check_model(
    model: WorldModel,
    obs: Obs | None = None,
    *,
    horizon: int = 4,
    chunk: int = 1,
    differentiable: bool = True,
    sensitive: bool = False,
    atol: float = 1e-4,
    seed: int = 0,
) -> tuple[str, ...]:
    """Checks that `model` is a world model; a module is put into evaluation mode meanwhile.

    Args:
        model: any implementation of `types.WorldModel`.
        obs: entries ``[B, C, ...]``, B of 3; None draws them as ``model.spec`` says.
        horizon: H, at least 2 and more than `chunk`.
        chunk: model steps that are predicted at once; a rollout that is continued after a multiple of
            them is the same as one that is not.
        differentiable: demands that gradients reach the actions.
        sensitive: demands that actions matter; for trained models, as fresh ones often ignore them.
        atol: what batch size and chunking may change, relative to ``max(1, |latent|)``.
        seed: of the inputs.

    Returns:
        The contracts that were exercised.

    Raises:
        AssertionError: one of them is broken.
    """
    assert horizon >= 2 and horizon > chunk >= 1, (horizon, chunk)
    require(
        isinstance(model.spec, ModelSpec), "model.spec is a ModelSpec", "ModelSpec", type(model.spec).__name__
    )
    noise = Noise.of(seed, _ROWS)
    context = model.spec.context
    obs = random_obs(model.spec, noise, context) if obs is None else obs
    past = random_actions(model.spec, noise.at("past"), context - 1)
    valid = torch.ones(len(_ROWS), context, dtype=torch.bool)
    future = random_actions(model.spec, noise, horizon)
    case = _Case(model, obs, past, valid, future, noise.at("model"), atol, chunk)
    checks = {
        "encode": _check_encode,
        "purity": _check_purity,
        "predict": _check_predict,
        "steps": _check_steps,
        "batch": _check_batch,
        "history": _check_history,
        "continuation": _check_continuation,
        "decode": _check_decode,
    }
    with evaluating(model), torch.no_grad():
        done = [name for name, check in checks.items() if check(case)]
    if differentiable and model.spec.action.choices is None:
        with evaluating(model), torch.enable_grad():
            _check_gradient(case, sensitive)
        done.append("gradient")
    if sensitive:
        with evaluating(model), torch.no_grad():
            _check_sensitivity(case)
        done.append("sensitivity")
    return tuple(done)


@dataclass(frozen=True)
class _Case:
    model: WorldModel
    obs: Obs
    past: Tensor
    valid: Tensor
    actions: Tensor
    noise: Noise
    atol: float
    chunk: int

    def encode(self) -> State:
        return self.model.encode(self.obs, self.past, self.valid)

    def predict(self, steps: Tensor | None = None) -> Rollout:
        return self.model.predict(self.encode(), self.actions, self.noise, steps)

    def select(self, rows: list[int]) -> _Case:
        index = torch.tensor(rows)
        return replace(
            self,
            obs=tree.select(self.obs, index),
            past=self.past[index],
            valid=self.valid[index],
            actions=self.actions[index],
            noise=self.noise.select(index),
        )


def _check_encode(case: _Case) -> bool:
    state = case.encode()
    require(
        isinstance(state, Mapping), "encode returns a mapping of tensors", "a mapping", type(state).__name__
    )
    require_rows(state, len(_ROWS), "every tensor of a state has one row per problem")
    return True


def _check_predict(case: _Case) -> bool:
    rollout, spec = case.predict(), case.model.spec
    rows, horizon = case.actions.shape[:2]
    require_shape(
        rollout.latent,
        (rows, horizon + 1, *spec.latent_shape),
        "predict returns latents [B, H+1, *spec.latent_shape], the start first",
    )
    steps = rollout.steps.tolist()
    require(steps == list(range(horizon + 1)), "without steps, all of 0..H", list(range(horizon + 1)), steps)
    require(bool(rollout.latent.isfinite().all()), "latents are finite", "finite", "NaN or inf")
    require_shape(rollout.actions, tuple(case.actions.shape), "a rollout tells the actions it was given")
    per_step = {"reward": horizon, "discount": horizon, "uncertainty": horizon + 1}
    for name, count in per_step.items():
        if (value := getattr(rollout, name)) is not None:
            require_shape(value, (rows, count), f"{name} has one value per step")
    if rollout.discount is not None:
        inside = bool(((rollout.discount >= 0) & (rollout.discount <= 1)).all())
        require(inside, "a discount lies in [0, 1]", "[0, 1]", rollout.discount)
    return True


def _check_steps(case: _Case) -> bool:
    full, horizon = case.predict(), case.actions.shape[1]
    for steps in ([horizon], [0], [1, horizon], list(range(1, horizon + 1))):
        part = case.predict(torch.tensor(steps))
        contract = f"predict(steps={steps}) returns those latents of the full rollout"
        require(part.steps.tolist() == steps, contract, steps, part.steps.tolist())
        require_close(part.latent, full.latent[:, steps], case.atol, contract)
        if part.final is not None and full.final is not None:
            _require_states(part.final, full.final, case.atol, "the final state does not depend on steps")
    return True


def _check_purity(case: _Case) -> bool:
    state = case.encode()
    before = copied({"state": state, "obs": case.obs, "actions": case.actions, "past": case.past})
    with untouched_generators("the model"):
        first = case.model.predict(state, case.actions, case.noise)
        again = case.model.predict(state, case.actions, case.noise)
        case.encode()
    contract = "predict gives the same answer to the same state, actions and noise"
    require_same({"latent": again.latent}, {"latent": first.latent}, contract)
    after = {"state": state, "obs": case.obs, "actions": case.actions, "past": case.past}
    require_same(after, before, "encode and predict leave what they are given alone")
    return True


def _check_batch(case: _Case) -> bool:
    full = case.predict().latent
    contract = "a row does not depend on the rows beside it"
    for row in range(len(_ROWS)):
        require_close(case.select([row]).predict().latent, full[[row]], case.atol, contract)
    order = [2, 0, 1, 1]
    require_close(case.select(order).predict().latent, full[order], case.atol, contract)
    return True


def _check_history(case: _Case) -> bool:
    """Frames that do not exist must not matter, whatever stands in their place."""
    context = case.model.spec.context
    if context < 2:
        return False
    contract = "frames marked as not valid do not matter"
    for missing in range(1, context):
        valid = case.valid.clone()
        valid[:, :missing] = False
        here = replace(case, valid=valid)
        other = tree.map(lambda frames, cut=missing: _spoilt(frames, cut), case.obs)
        past = _spoilt(case.past, missing)
        require_close(
            replace(here, obs=other, past=past).predict().latent, here.predict().latent, case.atol, contract
        )
    return True


def _spoilt(values: Tensor, count: int) -> Tensor:
    """Other values in the first `count` places of axis 1."""
    spoilt = values.clone()
    spoilt[:, :count] = spoilt[:, :count].flip(0) + (1 if values.dtype.is_floating_point else 0)
    return spoilt


def _check_continuation(case: _Case) -> bool:
    whole, state = case.predict(), case.encode()
    half = max(case.actions.shape[1] // 2 // case.chunk, 1) * case.chunk
    first = case.model.predict(state, case.actions[:, :half], case.noise)
    require(first.final is not None, "a full rollout carries the state to continue from", "a state", None)
    assert first.final is not None
    shapes = {key: tuple(value.shape) for key, value in _flat(state).items()}
    found = {key: tuple(value.shape) for key, value in _flat(first.final).items()}
    require(found == shapes, "the shape of a state does not depend on the steps taken", shapes, found)
    second = case.model.predict(first.final, case.actions[:, half:], case.noise)
    other = case.model.predict(state, case.actions, replace(case.noise, seed=case.noise.seed + 1))
    if not torch.equal(other.latent, whole.latent):
        return False  # a stochastic model: the two draw differently
    joined = torch.cat((first.latent, second.latent[:, 1:]), 1)
    contract = "predicting on from the final state continues the same future"
    require_close(joined, whole.latent, case.atol, contract)
    return True


def _check_decode(case: _Case) -> bool:
    decode = getattr(case.model, "decode", None)
    if decode is None:
        return False
    rows = len(_ROWS)
    decoded = decode(case.predict().latent[:, -1])
    require_rows(decoded, rows, "decode returns one row per latent")
    for key, value in decoded.items():
        if key in case.model.spec.obs:
            shape = (rows, *case.model.spec.obs[key])
            require_shape(value, shape, f"decode draws {key} as the model reads it")
            require(value.dtype == case.obs[key].dtype, f"dtype of {key}", case.obs[key].dtype, value.dtype)
    return True


def _check_gradient(case: _Case, sensitive: bool) -> None:
    actions = case.actions.clone().requires_grad_()
    latent = replace(case, actions=actions).predict().latent
    require(latent.requires_grad, "gradients reach the actions", "a graph", "latents without one")
    (gradient,) = torch.autograd.grad(latent[:, -1].square().sum(), actions, allow_unused=True)
    require(gradient is not None, "gradients reach the actions", "a gradient", None)
    require(bool(gradient.isfinite().all()), "gradients are finite", "finite", "NaN or inf")
    if sensitive:
        moved = gradient.abs().amax((0, 2)) > 0
        require(bool(moved.all()), "every step's action has an effect", "no zero gradient", moved.tolist())


def _check_sensitivity(case: _Case) -> None:
    opposite = case.actions.flip(0)
    moved = (replace(case, actions=opposite).predict().latent[:, -1] - case.predict().latent[:, -1]).abs()
    largest = float(moved.max())
    require(largest > case.atol, "other actions lead to other futures", f"more than {case.atol:g}", largest)


def _require_states(found: State, expected: State, atol: float, contract: str) -> None:
    flat = _flat(found)
    for key, value in _flat(expected).items():
        require_close(flat[key], value, atol, contract)


def _flat(state: State, path: str = "") -> dict[str, Tensor]:
    flat: dict[str, Tensor] = {}
    for key, value in state.items():
        here = f"{path}{key}"
        flat |= _flat(value, f"{here}.") if isinstance(value, Mapping) else {here: value}
    return flat
