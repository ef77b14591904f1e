"""LeWM keeps the contract of a world model in every configuration, and its terms reach what they should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from worldplan.errors import DataError, ProtocolMismatch, UsageError
from worldplan.models.lewm import LeWM, LeWMConfig
from worldplan.normalize import Statistics
from worldplan.seeding import Noise
from worldplan.testing import check_model
from worldplan.types import ActionSpec, Batch

ACTION = ActionSpec(2, (-1.0, -1.0), (1.0, 1.0))
CONV = LeWMConfig(
    image_size=16, latent_dim=8, frame_skip=2, conv_widths=(8, 8), conv_narrow=4, conv_features=16,
    projector_hidden=16, predictor_width=16, predictor_depth=1, predictor_heads=2, predictor_head_dim=4,
    predictor_hidden=16, sigreg_directions=8, decoder="field", decoder_size=16, head_hidden=16, state_dim=3,
    state_angles=(2,),
)  # fmt: skip
VIT: dict[str, Any] = {"encoder": "vit", "image_size": 28, "vit_width": 12, "vit_depth": 2}
CASES: dict[str, LeWMConfig] = {
    "conv, mlp, rollouts": CONV,
    "conv, adaln": replace(CONV, predictor="adaln", rollout_steps=1),
    "vit, adaln": replace(CONV, **VIT, predictor="adaln", rollout_steps=1),
    "keypoints, what and where": replace(CONV, conv_keypoints=3, centred_weight=1.0),
}


def made(config: LeWMConfig) -> LeWM:
    model = LeWM(config, config.spec("toy", ACTION))
    rng = np.random.default_rng(0)
    columns = {
        "action": rng.normal(size=(50, 2)),
        "state": rng.uniform(0, 6, size=(50, 3)),
        "pixels": rng.integers(0, 255, (20, config.image_size, config.image_size, 3), dtype=np.uint8),
    }
    model.fit_statistics(columns)
    return model


def batch_for(config: LeWMConfig, rows: int = 6, frames: int = 4) -> Batch:
    noise = Noise.of(3, rows)
    size = config.image_size
    pixels = noise.at("pixels").integers(256, frames, 3, size, size).to(torch.uint8)
    states = noise.at("state").uniform(frames, 3) * 6
    mask = torch.ones(rows, frames - 1, dtype=torch.bool)
    return Batch({"pixels": pixels, "state": states}, noise.at("action").normal(frames - 1, 4), mask)


@pytest.mark.parametrize("name", CASES)
def test_contract(name: str) -> None:
    assert check_model(made(CASES[name]))


@pytest.mark.parametrize("name", CASES)
def test_training_lowers_the_loss_and_reaches_the_encoder(name: str) -> None:
    config = CASES[name]
    model, batch = made(config), batch_for(config)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for step in range(30):
        loss, metrics = model.loss(batch, Noise.of(0, 6).at(step), step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert all(value.ndim == 0 and not value.requires_grad for value in metrics.values())
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    gradients = [parameter.grad for parameter in model.encoder.parameters()]
    assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)


def test_heads_leave_the_encoder_alone() -> None:
    config = replace(CONV, sigreg_weight=0.0, rollout_steps=1)
    bare, headed = replace(config, head_weight=0.0), config
    gradients = []
    for each in (bare, headed):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            model = made(each)
        model.loss(batch_for(each), Noise.of(0, 6), 0)[0].backward()
        gradients.append([p.grad.clone() for p in model.encoder.parameters() if p.grad is not None])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("known", [1, 2, 3])
@pytest.mark.parametrize("predictor", ["mlp", "adaln"])
def test_frames_that_do_not_exist_are_not_read(known: int, predictor: str) -> None:
    model = made(replace(CONV, predictor=predictor, rollout_steps=1)).eval()
    noise = Noise.of(5, 2)
    frames = noise.at("frames").integers(256, 3, 3, 16, 16).to(torch.uint8)
    other = frames.clone()
    other[:, : 3 - known] = 255 - other[:, : 3 - known]
    past, future = noise.at("past").normal(2, 4), noise.at("future").normal(4, 4)
    valid = torch.arange(3).expand(2, 3) >= 3 - known
    with torch.no_grad():
        one, two = (
            model.predict(model.encode({"pixels": each}, past, valid), future, noise).latent
            for each in (frames, other)
        )
    assert torch.equal(one, two)


def test_the_paper_has_eighteen_million_parameters() -> None:
    with torch.device("meta"):
        config = LeWMConfig.paper()
        model = LeWM(config, config.spec("pusht", ACTION))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(18.03e6, rel=0.01)


def test_wrong_frames_and_missing_statistics_are_refused() -> None:
    model = LeWM(CONV, CONV.spec("toy", ACTION)).eval()
    for frames in (
        torch.zeros(2, 16, 16, 3, dtype=torch.uint8),
        torch.zeros(2, 3, 16, 16),
        torch.zeros(2, 3, 8, 8, dtype=torch.uint8),
    ):
        with pytest.raises(UsageError, match="expected"):
            model.embed({"pixels": frames})
    with pytest.raises(DataError, match="statistics"):
        model.loss(batch_for(CONV), Noise.of(0, 6), 0)
    with pytest.raises(ProtocolMismatch, match="image|obs"):
        LeWM(CONV, replace(CONV, image_size=24).spec("toy", ACTION))
    assert Statistics.of(np.ones((3, 2)), "action").count == 3
