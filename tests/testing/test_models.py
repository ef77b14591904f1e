"""`check_model` accepts good models and finds each kind of broken one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from worldplan.protocol import ModelSpec
from worldplan.seeding import Noise
from worldplan.testing import DoubleIntegrator, check_model
from worldplan.types import ActionSpec, Obs, Rollout, State

CONTEXT, DIM = 3, 4
SPEC = ModelSpec(
    "toy", {"pixels": (3, 8, 8), "state": (DIM,)}, CONTEXT, 2, ActionSpec(1, (-1.0,), (1.0,)), (DIM,)
)


class Recurrent(nn.Module):
    """A good model: masked mean of the history, a linear step, optional noise keyed by a count."""

    def __init__(self, std: float = 0.0, spec: ModelSpec = SPEC) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.spec, self.std = spec, std
        self.mix = nn.Linear(DIM + spec.action_dim, DIM)
        self.see = nn.Linear(3 * 64, DIM)
        self.drop = nn.Dropout(0.5)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5

    def encode(self, obs: Obs, actions: Tensor, valid: Tensor) -> State:
        frames = self.see(obs["pixels"].flatten(2).float() / 255) + obs["state"]
        padded = torch.cat((torch.zeros_like(actions[:, :1]), actions), 1).float()
        seen = (frames + padded.sum(-1, keepdim=True)) * valid[..., None]
        # the action into the first valid frame led from one that is not
        first = valid & ~torch.cat((torch.zeros_like(valid[:, :1]), valid[:, :-1]), 1)
        seen = seen - padded.sum(-1, keepdim=True) * first[..., None]
        return {
            "z": seen.sum(1) / valid.sum(1, keepdim=True),
            "age": torch.zeros(len(valid), dtype=torch.int64),
        }

    def predict(self, state: State, actions: Tensor, noise: Noise, steps: Tensor | None = None) -> Rollout:
        latent, path = state["z"], [state["z"]]
        for index, action in enumerate(actions.unbind(1)):
            latent = self.drop(torch.tanh(self.mix(torch.cat((latent, action.float()), 1))))
            if self.std:
                latent = latent + self.std * noise.at("step", index).normal(DIM)
            path.append(latent)
        steps = torch.arange(len(path)) if steps is None else steps
        final = {"z": path[-1], "age": state["age"] + actions.shape[1]}
        return Rollout(torch.stack(path, 1)[:, steps], steps, actions, final=final)

    def decode(self, latent: Tensor) -> Obs:
        return {"state": latent.clone(), "pixels": torch.zeros(len(latent), 3, 8, 8, dtype=torch.uint8)}


def test_good_models_pass() -> None:
    exact = check_model(DoubleIntegrator(), sensitive=True, atol=0.0)
    assert set(exact) == {
        "encode", "predict", "steps", "purity", "batch", "continuation", "gradient", "sensitivity",
    }  # fmt: skip
    learned = check_model(Recurrent(), sensitive=True)
    assert {"history", "decode", "continuation"} < set(learned)
    # what was in training mode is again
    assert Recurrent().training
    model = Recurrent()
    check_model(model)
    assert model.training
    model.eval()
    check_model(model)
    assert not model.training


def test_stochastic_and_discrete_models_pass() -> None:
    assert "continuation" not in check_model(Recurrent(std=0.3))
    discrete = replace(SPEC, action=ActionSpec(1, choices=4))
    assert "gradient" not in check_model(Recurrent(spec=discrete))


def test_the_spec_must_be_one() -> None:
    model = DoubleIntegrator()
    model.spec = {"context": 1}  # type: ignore[assignment]
    with pytest.raises(AssertionError, match="spec is a ModelSpec"):
        check_model(model)


class Broken(DoubleIntegrator):
    """A good model whose rollouts are spoilt by a function."""

    def __init__(self, spoil: Any) -> None:
        super().__init__()
        self.spoil = spoil

    def predict(self, state: State, actions: Tensor, noise: Noise, steps: Tensor | None = None) -> Rollout:
        rollout = super().predict(state, actions, noise, steps)
        return self.spoil(rollout, state, actions, noise, steps)


def _shapes(r: Rollout, *_: Any) -> Rollout:
    return replace(r, latent=r.latent[:, 1:])


def _nan(r: Rollout, *_: Any) -> Rollout:
    return replace(r, latent=r.latent / 0 * 0)


def _reward(r: Rollout, *_: Any) -> Rollout:
    return replace(r, reward=torch.zeros(len(r.actions)))


def _discount(r: Rollout, *_: Any) -> Rollout:
    return replace(r, discount=torch.full(r.actions.shape[:2], 1.5))


def _no_final(r: Rollout, *_: Any) -> Rollout:
    return replace(r, final=None)


def _steps(r: Rollout, *_: Any) -> Rollout:
    return replace(r, latent=r.latent[:, :1].expand_as(r.latent))


def _wrong_steps(r: Rollout, state: State, actions: Tensor, noise: Noise, steps: Tensor | None) -> Rollout:
    return replace(r, steps=r.steps + (0 if steps is None else 1))


def _shifted(r: Rollout, state: State, actions: Tensor, noise: Noise, steps: Tensor | None) -> Rollout:
    return r if steps is None else replace(r, latent=r.latent + 0.1)


def _batch(r: Rollout, *_: Any) -> Rollout:
    return replace(r, latent=r.latent - r.latent.mean(0))


def _batch_first(r: Rollout, *_: Any) -> Rollout:
    return replace(r, latent=r.latent + r.latent[:1])


def _global_noise(r: Rollout, *_: Any) -> Rollout:
    return replace(r, latent=r.latent + torch.randn(r.latent.shape))


def _numpy_noise(r: Rollout, *_: Any) -> Rollout:
    np.random.rand()  # noqa: NPY002
    return r


def _writes_state(r: Rollout, state: State, *_: Any) -> Rollout:
    state["x"].zero_()
    return r


def _no_graph(r: Rollout, *_: Any) -> Rollout:
    return replace(r, latent=r.latent.detach())


def _growing_state(r: Rollout, *_: Any) -> Rollout:
    return replace(r, final={"x": torch.cat((r.final["x"], r.final["x"]), 1)})


def _stale_final(r: Rollout, state: State, *_: Any) -> Rollout:
    return replace(r, final={"x": state["x"]})


def _noise_by_place(r: Rollout, state: State, actions: Tensor, noise: Noise, steps: Tensor | None) -> Rollout:
    extra = Noise.of(0, len(actions)).normal(1)
    return replace(r, latent=r.latent + extra[:, None])


def _ignores_actions(
    r: Rollout, state: State, actions: Tensor, noise: Noise, steps: Tensor | None
) -> Rollout:
    return replace(r, latent=state["x"][:, None].expand_as(r.latent) + 0 * r.latent, final=state)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_shapes, r"latents \[B, H\+1"),
        (_nan, "latents are finite"),
        (_reward, "reward has one value per step"),
        (_discount, "discount lies in"),
        (_no_final, "carries the state to continue from"),
        (_steps, "continues the same future|of the full rollout"),
        (_wrong_steps, r"predict\(steps="),
        (_shifted, r"predict\(steps="),
        (_batch, "does not depend on the rows beside it"),
        (_batch_first, "does not depend on the rows beside it"),
        (_global_noise, r"of the full rollout|noise it is given only"),
        (_numpy_noise, r"noise it is given only(.|\n)*numpy\.random"),
        (_writes_state, "leave what they are given alone|same answer"),
        (_no_graph, "gradients reach the actions"),
        (_growing_state, "does not depend on the steps taken"),
        (_stale_final, "continues the same future"),
        (_noise_by_place, "does not depend on the rows beside it"),
        (_ignores_actions, "every step's action has an effect"),
    ],
)
def test_broken_rollouts_are_found(spoil: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_model(Broken(spoil), sensitive=True)


class ReadsMissing(Recurrent):
    """Reads frames that do not exist."""

    def encode(self, obs: Obs, actions: Tensor, valid: Tensor) -> State:
        return super().encode(obs, actions, torch.ones_like(valid))


class BatchNormalised(Recurrent):
    """Normalises by the batch even when evaluated."""

    def encode(self, obs: Obs, actions: Tensor, valid: Tensor) -> State:
        state = super().encode(obs, actions, valid)
        return {**state, "z": state["z"] - state["z"].mean(0)}


class OneState(Recurrent):
    """A state with a leaf of another number of rows."""

    def encode(self, obs: Obs, actions: Tensor, valid: Tensor) -> State:
        return {**super().encode(obs, actions, valid), "shared": torch.zeros(1, 5)}


class DrawsFloats(Recurrent):
    """Decodes images as floats."""

    def decode(self, latent: Tensor) -> Obs:
        return {"pixels": torch.zeros(len(latent), 3, 8, 8)}


class DrawsSmall(Recurrent):
    """Decodes images of another size."""

    def decode(self, latent: Tensor) -> Obs:
        return {"pixels": torch.zeros(len(latent), 3, 4, 4, dtype=torch.uint8)}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ReadsMissing(), "not valid do not matter"),
        (BatchNormalised(), "rows beside it"),
        (OneState(), "one row per problem"),
        (DrawsFloats(), "dtype of pixels"),
        (DrawsSmall(), "decode draws pixels"),
    ],
)
def test_broken_models_are_found(model: Recurrent, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_model(model)


def test_messages_say_expected_and_found() -> None:
    with pytest.raises(AssertionError) as caught:
        check_model(Broken(_reward))
    assert str(caught.value).splitlines() == [
        "reward has one value per step",
        "  expected: [3, 4]",
        "  found:    (3,)",
    ]
