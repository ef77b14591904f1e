"""LpWM in every arm: links, regularisers, rungs."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from worldplan.errors import ConfigError
from worldplan.models.ladder import RUNGS, Rung
from worldplan.models.links import RepReLU
from worldplan.models.rdmreg import RDMReg
from worldplan.models.settings import parse
from worldplan.models.sigreg import SIGReg
from worldplan.models.sparse import LpWM, LpWMConfig
from worldplan.models.vicreg import VICReg
from worldplan.seeding import Noise
from worldplan.testing import check_model
from worldplan.types import ActionSpec, Batch

ACTION = ActionSpec(2, (-1.0, -1.0), (1.0, 1.0))
TINY = LpWMConfig(
    image_size=16, latent_dim=8, frame_skip=2, conv_widths=(8, 8), conv_narrow=4, conv_features=16,
    projector_hidden=16, predictor_width=12, predictor_depth=1, predictor_heads=2, predictor_head_dim=4,
    predictor_hidden=16, dropout=0.0, directions=8, decoder_size=16, decoder_widths=(8, 8), head_hidden=16,
    state_dim=3, state_angles=(2,),
)  # fmt: skip
CASES: dict[str, LpWMConfig] = {
    "sparse, mlp_lti": TINY,
    "sparse, lti, one frame": replace(TINY, predictor="lti", context=1),
    "sparse, mlp_ltv, jaccard": replace(TINY, predictor="mlp_ltv", jaccard_weight=0.1),
    "sparse, adaln": replace(TINY, predictor="adaln"),
    "dense control": replace(TINY, link="identity", p=2.0),
    "dense, sigreg, rollouts": replace(TINY, link="identity", regularizer="sigreg", rollout_steps=3),
    "dense, vicreg": replace(TINY, link="identity", regularizer="vicreg"),
}


def made(config: LpWMConfig) -> LpWM:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = LpWM(config, config.spec("toy", ACTION))
    rng = np.random.default_rng(0)
    model.fit_statistics(
        {
            "action": rng.normal(size=(50, 2)),
            "state": rng.uniform(0, 6, size=(50, 3)),
            "pixels": rng.integers(0, 255, (20, 16, 16, 3), dtype=np.uint8),
        }
    )
    return model


def windows(frames: int = 5) -> Batch:
    draws = Noise.of(3, 6)
    pixels = draws.at("pixels").integers(256, frames, 3, 16, 16).to(torch.uint8)
    mask = torch.ones(6, frames - 1, dtype=torch.bool)
    states = draws.at("state").uniform(frames, 3) * 6
    return Batch({"pixels": pixels, "state": states}, draws.at("action").normal(frames - 1, 4), mask)


@pytest.mark.parametrize("name", CASES)
def test_contract(name: str) -> None:
    assert check_model(made(CASES[name]))


@pytest.mark.parametrize("name", CASES)
def test_training_lowers_the_loss_and_reaches_the_encoder(name: str) -> None:
    model, batch = made(replace(CASES[name], head_weight=0.0)), windows()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for step in range(60):
        loss, metrics = model.loss(batch, Noise.of(0, 6).at(step), step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert model.config.regularizer in metrics
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    assert any(p.grad is not None and p.grad.any() for p in model.encoder.parameters())


@pytest.mark.parametrize("name", CASES)
def test_a_model_can_be_sent_to_another_process(name: str) -> None:
    model = made(CASES[name]).eval()
    other = pickle.loads(pickle.dumps(model))
    obs = {"pixels": windows().obs["pixels"][:, 0]}
    assert torch.equal(model.embed(obs), other.embed(obs))


@pytest.mark.parametrize("name", CASES)
def test_codes_and_predictions_pass_the_same_link(name: str) -> None:
    model = made(CASES[name]).eval()
    with torch.no_grad():
        z = model.embed({"pixels": windows().obs["pixels"][:, 0]})
        ahead = model.forecast(z[:, None], torch.zeros(6, 0, 4), Noise.of(0, 6).normal(3, 4), [1, 3])
    sparse = name.startswith("sparse")
    assert bool((z >= 0).all()) == sparse and bool((z == 0).any()) == sparse
    for latent in ahead:
        assert bool((latent >= 0).all()) == sparse


def test_the_link_has_the_values_of_relu_and_the_gradient_of_gelu() -> None:
    x = torch.linspace(-4, 4, 101, requires_grad=True)
    y = RepReLU()(x)
    assert torch.equal(y, x.detach().relu())
    (found,) = torch.autograd.grad(y.sum(), x)
    (expected,) = torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x)
    torch.testing.assert_close(found, expected)
    assert found[20] != 0  # a unit that is off is still moved


def test_the_options_name_their_regulariser() -> None:
    def used(**changes: Any) -> Any:
        config = replace(TINY, **changes)
        (weight, function), *_ = made(config).regularizers.values()
        assert weight == config.regularizer_weight
        return function

    assert used() == RDMReg(1.0, 0.0, True, 8)
    assert used(link="identity", p=2.0) == RDMReg(2.0, 0.0, False, 8)
    assert used(link="identity", regularizer="sigreg") == SIGReg(8)
    assert used(link="identity", regularizer="vicreg") == VICReg()


@pytest.mark.parametrize("rung", RUNGS)
def test_rungs_are_the_maps_they_claim_to_be(rung: str) -> None:
    made_ = Rung(rung, 3, 4, 2, torch.nn.Identity(), rank=2).double()
    for parameter in made_.parameters():
        torch.nn.init.normal_(parameter)
    z, a = torch.randn(5, 2, 4).double(), torch.randn(5, 2, 2).double()

    def mapped(row: int) -> Tensor:
        newest, before = z[row, 1], z[row, 0]
        x = made_.control.weight @ made_.actions(a[row : row + 1, 1:])[0, 0]
        for index, latent in enumerate((newest, before)):
            matrix = made_.past[index].weight
            if made_.gate is not None:
                gates = made_.gate(newest).sigmoid().view(3, 2)[index]
                matrix = matrix + made_.outward[index].T @ torch.diag(gates) @ made_.inward[index].T
            x = x + matrix @ latent
        return x if made_.out is None else made_.out(x.relu())

    with torch.no_grad():
        expected = torch.stack([mapped(row) for row in range(5)])
        torch.testing.assert_close(made_.following(z, a), expected)


def test_a_linear_rung_begins_by_staying_where_it_is() -> None:
    rung = Rung("lti", 3, 4, 2, torch.nn.Identity())
    z, a = torch.randn(5, 3, 4), torch.randn(5, 3, 2)
    assert torch.equal(rung.following(z, a), z[:, -1])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("link", "relu"),
        ("regularizer", "none"),
        ("p", 0.0),
        ("predictor", "mlp"),
        ("regularizer_weight", -1.0),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{field} of LpWMConfig is out of range"):
        parse(LpWMConfig, {field: value})
    with pytest.raises(ConfigError, match="jaccard_weight of LpWMConfig"):
        LpWMConfig(link="identity", jaccard_weight=0.1)
    with pytest.raises(ConfigError, match="without a specification"):
        LpWM.from_config({}, None)


def test_the_published_variant_has_the_size_of_lewm() -> None:
    config = LpWMConfig.paper()
    with torch.device("meta"):
        model = LpWM(config, config.spec("pusht", ACTION))
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(18.0, abs=0.1)
