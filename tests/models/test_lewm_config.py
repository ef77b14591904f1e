"""The settings of LeWM: the published ones, plain values, and what is refused."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import nn

from worldplan.errors import ConfigError
from worldplan.models.lewm import LeWM
from worldplan.models.lewm_config import LeWMConfig
from worldplan.models.settings import parse
from worldplan.types import ActionSpec

ACTION = ActionSpec(2, (-1.0, -1.0), (1.0, 1.0))


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_published_model_has_its_published_parts() -> None:
    config = LeWMConfig.paper()
    with torch.device("meta"):
        model = LeWM(config, config.spec("pusht", ACTION))
    projector = 192 * 2048 + 2048 + 2 * 2048 + 2048 * 192 + 192
    # two dimensions times a frame-skip of five are mixed into ten channels
    actions = 10 * 10 + 10 + 10 * 768 + 768 + 768 * 192 + 192
    predictor: Any = model.predictor
    assert count(model.encoder) == 5_501_376
    assert count(model.projector) == count(predictor.outward) == projector
    assert count(predictor.actions) == actions
    assert round(count(predictor.transformer) / 1e6, 2) == 10.79
    assert count(predictor.inward) == 0  # tokens are as wide as latents
    assert count(model) == 5_501_376 + 2 * projector + actions + count(predictor.transformer)
    assert model.heads.names == () and model.inverse is None and model.centred is None


def test_the_published_settings_are_those_of_the_paper() -> None:
    config = LeWMConfig.paper()
    assert (config.image_size, config.vit_patch, config.latent_dim) == (224, 14, 192)
    assert (config.context, config.frame_skip, config.rollout_steps) == (3, 5, 1)
    assert (config.sigreg_weight, config.sigreg_directions, config.dropout) == (0.09, 1024, 0.1)
    assert not any((config.state_weight, config.reconstruction_weight, config.inverse_weight))


@pytest.mark.parametrize("config", [LeWMConfig(), LeWMConfig.paper()], ids=["small", "paper"])
def test_settings_come_back_from_their_plain_values(config: LeWMConfig) -> None:
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    found = parse(LeWMConfig, plain)
    assert found == config and asdict(found) == asdict(config)


def test_the_specification_says_what_the_model_is_fed() -> None:
    config = LeWMConfig(image_size=32, latent_dim=7, context=2, frame_skip=4)
    spec = config.spec("toy", ACTION, "top")
    assert dict(spec.obs) == {"top": (3, 32, 32)} and spec.pixels == "top"
    assert (spec.env, spec.context, spec.frame_skip, spec.latent_shape) == ("toy", 2, 4, (7,))
    assert spec.action is ACTION and spec.action_dim == 8


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("encoder", "resnet"), ("decoder", "mlp"), ("predictor", "rnn"),
        ("dropout", 1.0), ("dropout", -0.1), ("state_dim", -1),
        ("image_size", 0), ("latent_dim", 0), ("context", 0), ("frame_skip", 0), ("predictor_width", 0),
        ("predictor_depth", 0), ("rollout_steps", 0), ("sigreg_directions", 0), ("decoded_frames", 0),
        ("projector_hidden", 0), ("head_hidden", 0),
        ("sigreg_weight", -1.0), ("reconstruction_weight", -1.0), ("inverse_weight", -1.0),
        ("centred_weight", -1.0), ("head_weight", -1.0), ("foreground_weight", -1.0),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_and_named(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{field} of LeWMConfig is out of range") as caught:
        parse(LeWMConfig, {field: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("field", ["state_dim", "state_weight"])
def test_zero_is_no_value_out_of_range_where_it_switches_off(field: str) -> None:
    parse(LeWMConfig, {field: 0})


def test_weights_of_heads_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match="state_weight of LeWMConfig"):
        LeWMConfig(state_weight=1.0)
    with pytest.raises(ConfigError, match="reconstruction_weight of LeWMConfig"):
        LeWMConfig(pixel_head=False, reconstruction_weight=1.0)
    assert LeWMConfig(state_weight=1.0, state_dim=3).state_weight == 1
    assert LeWMConfig(reconstruction_weight=1.0).reconstruction_weight == 1


@pytest.mark.parametrize("angles", [(3,), (0, -1)])
def test_angles_outside_the_state_are_refused(angles: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="state_angles of LeWMConfig"):
        LeWMConfig(state_dim=3, state_angles=angles)
