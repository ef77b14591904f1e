"""Heads show what they should, learn from frames that exist, and leave the model alone."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from worldplan.errors import ConfigError, DataError, UsageError
from worldplan.models.heads import Heads, HeadTraining
from worldplan.models.lewm import LeWM, LeWMConfig
from worldplan.seeding import Noise
from worldplan.types import Batch

CONFIG = LeWMConfig(
    image_size=16, latent_dim=5, decoder_size=16, decoder_widths=(4, 4), state_dim=3, state_angles=(2,),
    head_hidden=8, decoder_fields=2,
)  # fmt: skip


def latents_of(*shape: int) -> Tensor:
    return Noise.of(7, shape[0]).at("latents").normal(*shape[1:])


def made(columns: Any, **changes: Any) -> Heads:
    heads = Heads(replace(CONFIG, **changes))
    heads.fit(columns())
    return heads


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, ("pixels", "state")),
        ({"decoder": "field"}, ("pixels", "state")),
        ({"state_dim": 0, "state_angles": ()}, ("pixels",)),
        ({"pixel_head": False}, ("state",)),
    ],
)
def test_what_is_shown_is_what_there_are_heads_for(changes: Any, names: Any, columns: Any) -> None:
    heads = made(columns, **changes)
    assert heads.names == names
    shown = heads.decode(latents_of(4, 5))
    assert tuple(shown) == names
    if "pixels" in names:
        assert shown["pixels"].shape == (4, 3, 16, 16) and shown["pixels"].dtype == torch.uint8
    if "state" in names:
        assert shown["state"].shape == (4, 3) and shown["state"].dtype == torch.float32
        assert heads.state is not None
        assert torch.equal(shown["state"], heads.state.decode(latents_of(4, 5)))


def test_smaller_drawings_are_enlarged_to_the_size_of_frames(columns: Any) -> None:
    heads = made(columns, decoder_size=8, decoder_widths=(4,))
    assert heads.pixels is not None
    small, large = heads.pixels.decode(latents_of(4, 5)), heads.decode(latents_of(4, 5))["pixels"]
    assert small.shape[-1] == 8 and large.shape[-1] == 16 and large.dtype == torch.uint8
    # a corner of a doubled picture lies nearest to the corner of the small one
    assert torch.equal(large[..., [0, 0, -1, -1], [0, -1, 0, -1]], small[..., [0, 0, -1, -1], [0, -1, 0, -1]])
    mean = large.float().mean((2, 3)) - small.float().mean((2, 3))
    assert mean.abs().max() < 2


def test_without_heads_nothing_can_be_shown_or_trained(columns: Any, lewm: Any) -> None:
    with pytest.raises(UsageError, match="cannot show"):
        made(columns, pixel_head=False, state_dim=0, state_angles=()).decode(latents_of(4, 5))
    bare = lewm(pixel_head=False, state_dim=0, state_angles=()).eval()
    with pytest.raises(ConfigError, match="no heads to train"):
        HeadTraining(bare)


@pytest.mark.parametrize("decoder", ["conv", "field"])
def test_frames_that_do_not_exist_change_no_loss_of_a_head(decoder: str, columns: Any, batch: Any) -> None:
    heads = made(columns, decoder=decoder, decoded_frames=4)
    full = batch()
    frames, latents = full.obs["pixels"], latents_of(6, 4, 5)
    seen = torch.arange(4) < torch.tensor([1, 2, 3, 4, 1, 2])[:, None]
    spoiled_frames = torch.where(seen[..., None, None, None], frames, 255 - frames)
    spoiled_latents = torch.where(seen[..., None], latents, 1e3)
    states = torch.where(seen[..., None], full.obs["state"], 1e6)
    spoiled = replace(full, obs={"pixels": spoiled_frames, "state": states})
    noise = Noise.of(3, 6)
    for name in heads.names:
        clean = heads.loss(name, latents, frames, full, seen, noise)
        assert torch.equal(heads.loss(name, spoiled_latents, spoiled_frames, spoiled, seen, noise), clean)
        # the same change does show where frames exist
        everywhere = torch.ones_like(seen)
        whole = heads.loss(name, latents, frames, full, everywhere, noise)
        changed = heads.loss(name, spoiled_latents, spoiled_frames, spoiled, everywhere, noise)
        assert not torch.equal(whole, changed)


def test_a_latent_is_compared_with_its_own_frame(columns: Any, batch: Any) -> None:
    heads = made(columns, decoded_frames=3, foreground_weight=0.0)
    assert heads.pixels is not None
    full, latents, noise = batch(), latents_of(6, 4, 5), Noise.of(3, 6)
    frames, seen = full.obs["pixels"], torch.ones(6, 4, dtype=torch.bool)
    given: list[tuple[Tensor, Tensor]] = []
    heads.pixels.loss = lambda one, other: given.append((one, other)) or one.sum()  # type: ignore
    heads.loss("pixels", latents, frames, full, seen, noise)
    ((chosen, shown),) = given
    assert len(chosen) == len(shown) == 6 * 3
    places = set()
    for index, (latent, frame) in enumerate(zip(chosen, shown, strict=True)):
        row = index // 3
        (time,) = [t for t in range(4) if torch.equal(latents[row, t], latent)]
        assert torch.equal(frames[row, time], frame)
        places.add(time)
    assert places == {0, 1, 2, 3}


def test_which_frames_are_drawn_depends_on_the_noise(columns: Any, batch: Any) -> None:
    heads, full, latents = made(columns), batch(), latents_of(6, 4, 5)
    seen = torch.ones(6, 4, dtype=torch.bool)

    def loss(name: str, noise: Noise) -> float:
        return heads.loss(name, latents, full.obs["pixels"], full, seen, noise).item()

    one, two = Noise.of(3, 6).at(0), Noise.of(3, 6).at(1)
    assert loss("pixels", one) == loss("pixels", one) != loss("pixels", two)
    assert loss("state", one) == loss("state", two)


def test_a_state_head_without_states_says_how_to_read_them(columns: Any, batch: Any) -> None:
    full = batch()
    bare = replace(full, obs={"pixels": full.obs["pixels"]})
    seen = torch.ones(6, 4, dtype=torch.bool)
    with pytest.raises(DataError, match=r'keys \("pixels", "state"\)'):
        made(columns).loss("state", latents_of(6, 4, 5), full.obs["pixels"], bare, seen, Noise.of(3, 6))


def trained(model: LeWM, batch: Batch, steps: int = 3) -> HeadTraining:
    training = HeadTraining(model)
    training.train()
    optimizer = torch.optim.Adam(training.parameters(), 1e-2)
    for step in range(steps):
        optimizer.zero_grad()
        loss, _ = training.loss(batch, Noise.of(0, 6).at(step), step)
        loss.backward()
        optimizer.step()
    return training


def test_training_heads_changes_them_and_nothing_else_of_the_model(lewm: Any, batch: Any) -> None:
    model = lewm(conv_batch_norm=True, conv_keypoints=2).eval()
    before = copy.deepcopy(model.state_dict())
    trained(model, batch())
    for key, value in model.state_dict().items():
        mine = key.startswith("heads.") and "mean" not in key and "std" not in key
        assert torch.equal(value, before[key]) != mine, key
    # no gradient is left behind for a later optimiser of the whole model either
    others = [p for key, p in model.named_parameters() if not key.startswith("heads.")]
    assert others and all(p.grad is None for p in others)


def test_training_mode_of_the_training_is_not_that_of_the_model(lewm: Any, batch: Any) -> None:
    model = lewm().eval()
    training = trained(model, batch(), steps=1)
    assert training.training and not model.training and not model.encoder.training
    assert {key.split(".")[0] for key in training.state_dict()} == {"heads"}
    model.train()
    with pytest.raises(UsageError, match=r"model\.eval\(\)"):
        training.loss(batch(), Noise.of(0, 6), 0)


def test_the_loss_of_head_training_is_the_sum_of_what_heads_lose_on_the_models_latents(
    lewm: Any, batch: Any
) -> None:
    model, full, noise = lewm().eval(), batch(), Noise.of(0, 6)
    full = replace(full, mask=full.mask & (torch.arange(3) < torch.tensor([[1], [2], [3], [3], [2], [1]])))
    loss, metrics = HeadTraining(model).loss(full, noise, 0)
    latents = torch.stack([model.embed({"pixels": full.obs["pixels"][:, t]}) for t in range(4)], 1)
    seen = torch.cat((torch.ones(6, 1, dtype=torch.bool), full.mask), 1)
    for name in ("pixels", "state"):
        expected = model.heads.loss(name, latents, full.obs["pixels"], full, seen, noise)
        torch.testing.assert_close(metrics[name], expected.detach())
        assert not metrics[name].requires_grad
    torch.testing.assert_close(loss.detach(), metrics["pixels"] + metrics["state"])
