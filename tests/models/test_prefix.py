"""Fast-LeWM: prefixes are causal, jumps chain, and the loss is the mean it claims to be."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from worldplan.errors import ConfigError
from worldplan.models.action_prefix import sinusoids
from worldplan.models.prefix import FastLeWM, FastLeWMConfig
from worldplan.models.settings import parse
from worldplan.seeding import Noise
from worldplan.testing import check_model
from worldplan.types import ActionSpec, Batch

ACTION = ActionSpec(2, (-1.0, -1.0), (1.0, 1.0))
NOISE = Noise.of(0, 6)
TINY = FastLeWMConfig(
    image_size=16, latent_dim=8, frame_skip=2, conv_widths=(8, 8), conv_narrow=4, conv_features=16,
    projector_hidden=16, prefix_steps=3, prefix_depth=2, prefix_heads=2, prefix_head_dim=4, prefix_hidden=16,
    predictor_width=12, predictor_depth=2, predictor_values=8, predictor_hidden=16, dropout=0.0,
    sigreg_directions=8, decoder_size=16, decoder_widths=(8, 8), head_hidden=16, state_dim=3,
    state_angles=(2,),
)  # fmt: skip
VIT: dict[str, Any] = {
    "encoder": "vit",
    "image_size": 28,
    "vit_width": 12,
    "vit_depth": 2,
}
CASES: dict[str, FastLeWMConfig] = {
    "small": TINY,
    "as published": replace(TINY, **VIT, pixel_head=False, residual=False, every_anchor=False, dropout=0.1),
    "no state token": replace(TINY, state_token=False),
    "curriculum": replace(TINY, curriculum_steps=10),
}


def made(config: FastLeWMConfig = TINY, columns: Any = None) -> FastLeWM:
    """With random weights throughout, so that nothing is zero because it starts there."""
    model = FastLeWM(config, config.spec("toy", ACTION))
    rng = np.random.default_rng(0)
    size = config.image_size
    model.fit_statistics(
        {
            "action": rng.normal(size=(50, 2)),
            "state": rng.uniform(0, 6, size=(50, 3)),
            "pixels": rng.integers(0, 255, (20, size, size, 3), dtype=np.uint8),
        }
    )
    for module in model.predictor.modules():
        if isinstance(module, nn.Linear) and not module.weight.any():
            nn.init.normal_(module.weight, std=0.2)
    return model


def windows(config: FastLeWMConfig = TINY, frames: int = 5) -> Batch:
    draws, size = Noise.of(3, 6), config.image_size
    pixels = draws.at("pixels").integers(256, frames, 3, size, size).to(torch.uint8)
    states = draws.at("state").uniform(frames, 3) * 6
    mask = torch.ones(6, frames - 1, dtype=torch.bool)
    mask[1, 2:], mask[2, 1:] = False, False
    return Batch({"pixels": pixels, "state": states}, draws.at("action").normal(frames - 1, 4), mask)


@pytest.mark.parametrize("name", CASES)
def test_contract(name: str) -> None:
    model = made(CASES[name])
    found = check_model(model, horizon=8, chunk=TINY.prefix_steps, sensitive=True)
    assert "continuation" in found and "gradient" in found
    with pytest.raises(AssertionError, match="continues the same future"):
        check_model(model, horizon=4)  # two jumps of two are not one of three and one of one


@pytest.mark.parametrize("name", CASES)
def test_training_lowers_the_loss_and_reaches_every_part(name: str) -> None:
    config = CASES[name]
    model, batch = made(config), windows(config)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for step in range(40):
        loss, metrics = model.loss(batch, Noise.of(0, 6).at(step), step + 100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert all(value.ndim == 0 and not value.requires_grad for value in metrics.values())
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    for part in (model.encoder, model.projector, model.predictor.encoder, model.predictor.predictor):
        assert all(p.grad is not None for p in part.parameters())


def test_an_action_changes_no_earlier_prefix_and_every_later_one() -> None:
    model = made().eval()
    z, actions = Noise.of(1, 4).at("z").normal(8), Noise.of(1, 4).at("a").normal(8, 4)
    with torch.no_grad():
        before = model.forecast(z[:, None], actions[:, :0], actions, range(1, 9))
        for changed in range(8):
            other = actions.clone()
            other[:, changed] += 1
            after = model.forecast(z[:, None], actions[:, :0], other, range(1, 9))
            for step in range(8):
                same = torch.equal(before[step], after[step])
                assert same == (step < changed), (changed, step)


@pytest.mark.parametrize("residual", [True, False])
def test_asking_for_less_changes_nothing(residual: bool) -> None:
    model = made(replace(TINY, residual=residual)).eval()
    z, actions = Noise.of(1, 4).at("z").normal(8), Noise.of(1, 4).at("a").normal(8, 4)
    with torch.no_grad():
        whole = model.forecast(z[:, None], actions[:, :0], actions, range(1, 9))
        for steps in ([8], [1], [3], [2, 7], [3, 4, 8]):
            some = model.forecast(z[:, None], actions[:, :0], actions, steps)
            for step, found in zip(steps, some, strict=True):
                torch.testing.assert_close(found, whole[step - 1])


def test_only_what_is_asked_for_is_computed() -> None:
    model = made().eval()
    rows: list[int] = []
    model.predictor.predictor.fusion.register_forward_hook(lambda _, args, out: rows.append(out.shape[1]))
    state = model.encode(
        {"pixels": windows().obs["pixels"][:, :1]}, torch.zeros(6, 0, 4), torch.ones(6, 1, dtype=torch.bool)
    )
    actions = Noise.of(1, 6).normal(3, 4)
    model.predict(state, actions, NOISE, torch.tensor([3]))
    assert rows == [1]
    model.predict(state, actions, NOISE)
    assert rows == [1, 3]


def test_beyond_the_longest_prefix_jumps_follow_each_other() -> None:
    model = made().eval()
    z, actions = Noise.of(1, 4).at("z").normal(8), Noise.of(1, 4).at("a").normal(8, 4)
    with torch.no_grad():
        first = model.jump(z, actions[:, :3])
        second = model.jump(first, actions[:, 3:6])
        third = model.jump(second, actions[:, 6:])
        torch.testing.assert_close(model.jump(z, actions), third)
        # within the longest prefix one jump is not two
        assert not torch.allclose(model.jump(model.jump(z, actions[:, :1]), actions[:, 1:3]), first)


@pytest.mark.parametrize("every", [True, False])
def test_the_prediction_error_is_a_mean_over_prefixes_that_exist(every: bool) -> None:
    model, batch = made(replace(TINY, every_anchor=every)).eval(), windows()
    _, metrics = model.loss(batch, NOISE, 0)
    latents, _, seen = model.latents(batch)
    actions = model.normalizer.normalize(batch.actions)
    errors = []
    with torch.no_grad():
        for row in range(6):
            for anchor in range(4 if every else 1):
                for length in range(1, 4):
                    if anchor + length < 5 and seen[row, anchor + length]:
                        given = actions[row : row + 1, anchor : anchor + length]
                        end = model.jump(latents[row : row + 1, anchor], given)[0]
                        errors.append((end - latents[row, anchor + length]).square().mean())
    torch.testing.assert_close(metrics["prediction"], torch.stack(errors).mean())


def test_a_curriculum_begins_with_one_step_and_keeps_it() -> None:
    model, batch = made(replace(TINY, curriculum_steps=30, every_anchor=False)).eval(), windows()
    batch = replace(batch, mask=torch.ones_like(batch.mask))
    latents, _, seen = model.latents(batch)
    latents, actions = latents.detach(), model.normalizer.normalize(batch.actions)
    by_length = []
    with torch.no_grad():
        for length in (1, 2, 3):
            jumped = model.jump(latents[:, 0], actions[:, :length])
            by_length.append((jumped - latents[:, length]).square().mean(-1))
        table = torch.stack(by_length, 1)  # [B, 3]
        for step, bound in ((0, 1), (9, 1), (10, 2), (19, 2), (20, 3), (500, 3)):
            chosen = set()
            for draw in range(20):
                noise = NOISE.at(draw)
                lengths = noise.at("length").integers(bound)
                expected = table[torch.arange(6), lengths].mean()
                found = model.prediction_error(latents, actions, seen, noise, step)
                torch.testing.assert_close(found, expected)
                chosen |= set(lengths.tolist())
            assert chosen == set(range(bound))


def test_positions_are_the_published_waves() -> None:
    waves = sinusoids(6, 5)
    assert waves.shape == (6, 5)
    for place in range(6):
        for pair in range(3):
            angle = place / 10_000 ** (2 * pair / 5)
            assert waves[place, 2 * pair].item() == pytest.approx(np.sin(angle), abs=1e-6)
            if 2 * pair + 1 < 5:
                assert waves[place, 2 * pair + 1].item() == pytest.approx(np.cos(angle), abs=1e-6)


def test_the_published_model_has_its_published_size() -> None:
    config = FastLeWMConfig.paper()
    with torch.device("meta"):
        model = FastLeWM(config, config.spec("pusht", ACTION))
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(17.9, abs=0.05)


def test_untrained_a_residual_model_stays_where_it_is() -> None:
    model = FastLeWM(TINY, TINY.spec("toy", ACTION)).eval()
    z, actions = torch.randn(4, 8), torch.randn(4, 7, 4)
    assert torch.equal(model.jump(z, actions), z)


@pytest.mark.parametrize(
    ("field", "value"), [("context", 3), ("prefix_steps", 0), ("dropout", 1.0), ("curriculum_steps", -1)]
)
def test_settings_that_cannot_be_meant_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{field} of FastLeWMConfig is out of range"):
        parse(FastLeWMConfig, {field: value})
    with pytest.raises(ConfigError, match="without a specification"):
        FastLeWM.from_config({}, None)


def test_a_model_comes_back_from_its_plain_values_and_weights() -> None:
    model = made(replace(TINY, residual=False)).eval()
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(model.config).items()}
    other = FastLeWM.from_config(plain, model.spec).eval()
    other.load_state_dict(model.state_dict())
    z, actions = torch.randn(4, 8), torch.randn(4, 7, 4)
    assert other.config == model.config and torch.equal(model.jump(z, actions), other.jump(z, actions))
