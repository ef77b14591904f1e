"""LeWM term by term: each is the mean it claims to be, over what exists, and reaches what it should."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from worldplan.errors import ConfigError, DataError, UsageError
from worldplan.models.lewm import LeWM, LeWMConfig
from worldplan.models.sigreg import SIGReg
from worldplan.seeding import Noise
from worldplan.types import ActionSpec, Batch

ACTION = ActionSpec(2, (-1.0, -1.0), (1.0, 1.0))
NOISE = Noise.of(3, 6)
LENGTHS = torch.tensor([0, 1, 2, 3, 3, 1])
ALL: dict[str, Any] = {"inverse_weight": 1.0, "centred_weight": 1.0, "decoded_frames": 3}


def partly(full: Batch) -> tuple[Batch, Tensor]:
    """A batch whose windows end early, and which of its frames exist."""
    mask = torch.arange(full.mask.shape[1]) < LENGTHS[:, None]
    return replace(full, mask=mask), torch.cat((torch.ones(6, 1, dtype=torch.bool), mask), 1)


def history(rows: int = 4, size: int = 16) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    draws = Noise.of(5, rows)
    frames = draws.at("frames").integers(256, 3, 3, size, size).to(torch.uint8)
    return {"pixels": frames}, draws.at("past").normal(2, 4), torch.ones(rows, 3, dtype=torch.bool)


@pytest.mark.parametrize("predictor", ["mlp", "adaln"])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_prediction_term_is_the_mean_over_histories_that_exist(
    predictor: str, steps: int, lewm: Any, batch: Any
) -> None:
    model = lewm(predictor=predictor, rollout_steps=steps).eval()
    masked, seen = partly(batch())
    _, metrics = model.loss(masked, NOISE, 0)
    errors = []
    with torch.no_grad():
        actions = (masked.actions - model.normalizer.mean.repeat(2)) / model.normalizer.std.repeat(2)
        for row in range(6):
            z = model.embed({"pixels": masked.obs["pixels"][row]})
            for known in range(1, 4):
                # feeds back as far as rollout_steps and the window go, one row at a time
                ahead = min(steps, 4 - known)
                given = actions[row : row + 1, known - 1 : known - 1 + ahead]
                past = actions[row : row + 1, : known - 1]
                path = model.predictor.rollout(z[None, :known], past, given)
                for step, predicted in enumerate(path):
                    if seen[row, known + step]:
                        errors.append((predicted[0] - z[known + step]).square().mean())
    torch.testing.assert_close(metrics["prediction"], torch.stack(errors).mean())


def test_the_other_terms_are_what_their_parts_say_of_frames_that_exist(lewm: Any, batch: Any) -> None:
    model = lewm(**ALL).eval()
    masked, seen = partly(batch())
    _, metrics = model.loss(masked, NOISE, 0)
    frames = masked.obs["pixels"]
    with torch.no_grad():
        z = torch.stack([model.embed({"pixels": frames[:, t]}) for t in range(4)], 1)
        sigreg = SIGReg(16)(z, NOISE, seen)
        errors = []
        for row, t in masked.mask.nonzero().tolist():
            read = model.inverse(torch.cat((z[row, t], z[row, t + 1])))
            errors.append((read - model.normalizer.normalize(masked.actions[row, t])).square().mean())
        what, where = model.centred.loss(z[seen], frames[seen])
        pixels = model.heads.loss("pixels", z, frames, masked, seen, NOISE)
        state = model.heads.loss("state", z, frames, masked, seen, NOISE)
    expected = {
        "sigreg": sigreg, "inverse": torch.stack(errors).mean(), "what": what, "where": where,
        "pixels": pixels, "state": state, "latent_std": z[seen].std(0).mean(),
    }  # fmt: skip
    assert set(metrics) == {"prediction", *expected}
    for name, value in expected.items():
        torch.testing.assert_close({name: metrics[name]}, {name: value})


def test_the_loss_is_the_weighted_sum_of_its_terms(lewm: Any, batch: Any) -> None:
    weights = {
        "sigreg_weight": 0.3, "inverse_weight": 0.5, "centred_weight": 0.7, "reconstruction_weight": 1.1,
        "state_weight": 1.3, "head_weight": 99.0,
    }  # fmt: skip
    model = lewm(**weights).eval()
    loss, terms = model.loss(batch(), NOISE, 0)
    factors = {"prediction": 1, "sigreg": 0.3, "inverse": 0.5, "what": 0.7, "where": 0.7, "pixels": 1.1}
    factors["state"] = 1.3
    expected = torch.stack([factor * terms[name] for name, factor in factors.items()]).sum()
    torch.testing.assert_close(loss.detach(), expected)
    assert all(not value.requires_grad and value.ndim == 0 for value in terms.values())
    # heads without a weight of their own have that of heads that change nothing but themselves
    model = lewm(head_weight=0.2).eval()
    loss, terms = model.loss(batch(), NOISE, 0)
    rest = terms["prediction"] + 0.09 * terms["sigreg"]
    torch.testing.assert_close(loss.detach(), rest + 0.2 * (terms["pixels"] + terms["state"]))


@pytest.mark.parametrize("predictor", ["mlp", "adaln"])
def test_what_does_not_exist_changes_no_term(predictor: str, lewm: Any, batch: Any) -> None:
    model = lewm(predictor=predictor, **ALL).eval()  # in training mode, BatchNorm sees padding as well
    masked, seen = partly(batch())
    shown = seen[..., None, None, None]
    spoiled = Batch(
        {
            "pixels": torch.where(shown, masked.obs["pixels"], 255 - masked.obs["pixels"]),
            "state": torch.where(seen[..., None], masked.obs["state"], 1e6),
        },
        torch.where(masked.mask[..., None], masked.actions, 50.0),
        masked.mask,
    )
    _, clean = model.loss(masked, NOISE, 0)
    _, found = model.loss(spoiled, NOISE, 0)
    for name, value in clean.items():
        torch.testing.assert_close({name: found[name]}, {name: value})
    whole = torch.ones_like(masked.mask)
    _, clean = model.loss(replace(masked, mask=whole), NOISE, 0)
    _, found = model.loss(replace(spoiled, mask=whole), NOISE, 0)
    assert all(not torch.equal(found[name], value) for name, value in clean.items())


def test_the_target_of_a_prediction_carries_the_gradient_too(lewm: Any, batch: Any) -> None:
    """The paper stops no gradient: the encoder is moved toward predictions as predictions are toward it."""
    model = lewm(sigreg_weight=0.0, head_weight=0.0, rollout_steps=1).eval()
    full = batch()
    full = replace(full, mask=torch.tensor([[True, False, False]] * 6))
    given: list[Tensor] = []
    original = model._latents

    def kept(frames: Tensor) -> Tensor:
        latents: Tensor = original(frames)
        latents.retain_grad()
        given.append(latents)
        return latents

    model._latents = kept
    model.loss(full, NOISE, 0)[0].backward()
    assert given[0].grad is not None
    gradient = given[0].grad.view(6, 4, 8)
    assert (gradient[:, :2] != 0).any(-1).all() and (gradient[:, 2:] == 0).all()


GRADIENTS = [
    ({}, False),
    ({"head_weight": 0.0, "inverse_weight": 1.0}, True),
    ({"head_weight": 0.0, "centred_weight": 1.0}, True),
    ({"reconstruction_weight": 1.0, "head_weight": 0.0}, True),
    ({"state_weight": 1.0, "head_weight": 0.0}, True),
]


@pytest.mark.parametrize(("changes", "reaches"), GRADIENTS)
def test_a_term_reaches_the_encoder_only_by_a_weight_of_its_own(
    changes: Any, reaches: bool, lewm: Any, batch: Any
) -> None:
    model = lewm(sigreg_weight=0.0, **changes).eval()
    model.prediction_error = lambda latents, *_: latents.new_zeros(())  # that term aside
    loss, _ = model.loss(batch(), NOISE, 0)
    loss.backward()
    moved = [p.grad is not None and bool(p.grad.any()) for p in model.encoder.parameters()]
    assert any(moved) == reaches
    if model.heads.names and model.config.head_weight:
        assert all(p.grad is not None and bool(p.grad.any()) for p in model.heads.state.parameters())


def test_without_weight_heads_are_not_trained_and_batches_need_no_states(lewm: Any, batch: Any) -> None:
    full = batch()
    bare = replace(full, obs={"pixels": full.obs["pixels"]})
    _, metrics = lewm(head_weight=0.0).loss(bare, NOISE, 0)
    assert set(metrics) == {"prediction", "sigreg", "latent_std"}
    with pytest.raises(DataError, match="state head has nothing to learn from"):
        lewm().loss(bare, NOISE, 0)


def test_latents_of_a_batch_are_those_of_its_frames(lewm: Any, batch: Any) -> None:
    model = lewm().eval()
    masked, seen = partly(batch())
    latents, frames, found = model.latents(masked)
    assert torch.equal(found, seen) and frames is masked.obs["pixels"]
    assert latents.shape == (6, 4, 8) and latents.dtype == torch.float32
    for t in range(4):
        torch.testing.assert_close(latents[:, t], model.embed({"pixels": frames[:, t]}))
    with pytest.raises(UsageError, match=r"\[B, T, 3, 16, 16\]"):
        model.latents(replace(masked, obs={"pixels": frames[:, 0]}))


def test_latents_are_single_precision_under_autocast(lewm: Any, batch: Any) -> None:
    model = lewm().eval()
    with torch.autocast("cpu", torch.bfloat16):
        assert model.encoder(batch().obs["pixels"][:, 0]).dtype == torch.bfloat16
        assert model.latents(batch())[0].dtype == torch.float32


@pytest.mark.parametrize("missing", ["action", "state", "pixels"])
def test_a_column_that_cannot_be_measured_is_named_and_so_are_those_needed(
    missing: str, lewm: Any, columns: Any
) -> None:
    model, have = lewm(), columns()
    assert model.measures == ("action", "pixels", "state")
    shorter = {key: value[:, :1] if key == missing else value for key, value in have.items()}
    absent = {key: value for key, value in have.items() if key != missing}
    for wrong in (absent, shorter):
        with pytest.raises(DataError, match=f"statistics of '{missing}' cannot be measured") as caught:
            model.fit_statistics(wrong)
        assert "columns action, pixels, state" in str(caught.value)


def test_only_what_is_needed_must_be_measured(columns: Any) -> None:
    have = columns()
    config = LeWMConfig(image_size=16, pixel_head=False, conv_widths=(6, 5))
    for changes, needed in (
        ({}, ("action",)),
        ({"state_dim": 3}, ("action", "state")),
        ({"centred_weight": 1.0}, ("action", "pixels")),
    ):
        changed = replace(config, **changes)
        model = LeWM(changed, changed.spec("toy", ACTION))
        assert model.measures == needed
        model.fit_statistics({key: have[key] for key in needed})
        expected = torch.from_numpy(have["action"]).mean(0)
        torch.testing.assert_close(model.normalizer.mean, expected)
        if model.centred is not None:
            frame = torch.from_numpy(have["pixels"]).float().mean(0).movedim(-1, 0)
            torch.testing.assert_close(model.centred.mean_frame, frame)


def test_a_history_of_another_length_is_refused(lewm: Any) -> None:
    model = lewm().eval()
    obs, past, valid = history()
    short = {"pixels": obs["pixels"][:, 1:]}
    for wrong in ((short, past, valid), (obs, past[:, 1:], valid), (obs, past, valid[:, 1:])):
        with pytest.raises(UsageError, match=r"3 frames, 2 actions and a valid flag per frame"):
            model.encode(*wrong)
    with pytest.raises(UsageError, match="one frame per row and step"):
        model.encode({"pixels": obs["pixels"][:, 0]}, past, valid)


@pytest.mark.parametrize(
    "flags", [[False, False, False], [True, True, False], [True, False, True], [False, True, False]]
)
def test_frames_that_are_not_the_newest_are_refused(flags: list[bool], lewm: Any) -> None:
    model = lewm().eval()
    obs, past, valid = history()
    valid[1] = torch.tensor(flags)
    with pytest.raises(UsageError, match="newest"):
        model.encode(obs, past, valid)


def test_a_state_holds_latents_and_actions_of_frames_that_exist(lewm: Any) -> None:
    model = lewm().eval()
    obs, past, _ = history()
    count = torch.tensor([1, 2, 3, 2])
    valid = torch.arange(3) >= 3 - count[:, None]
    with torch.no_grad():
        state = model.encode(obs, past, valid)
        z = torch.stack([model.embed({"pixels": obs["pixels"][:, t]}) for t in range(3)], 1)
    assert torch.equal(state["count"], count)
    torch.testing.assert_close(state["latents"], torch.where(valid[..., None], z, 0.0))
    # the action before the oldest frame led out of a frame that does not exist
    assert torch.equal(state["actions"], torch.where(valid[:, :2, None], past, 0.0))


@pytest.mark.parametrize("predictor", ["mlp", "adaln"])
def test_rows_of_different_lengths_are_predicted_as_if_alone(predictor: str, lewm: Any) -> None:
    model = lewm(predictor=predictor).eval()
    obs, past, _ = history()
    valid = torch.arange(3) >= 3 - torch.tensor([2, 1, 3, 1])[:, None]
    future = Noise.of(5, 4).at("future").normal(5, 4)
    with torch.no_grad():
        together = model.predict(model.encode(obs, past, valid), future, NOISE)
        for row in range(4):
            one = slice(row, row + 1)
            state = model.encode({"pixels": obs["pixels"][one]}, past[one], valid[one])
            alone = model.predict(state, future[one], NOISE)
            torch.testing.assert_close(together.latent[one], alone.latent)
            assert together.final is not None and alone.final is not None
            for key, value in alone.final.items():
                torch.testing.assert_close(together.final[key][one], value)


@pytest.mark.parametrize("predictor", ["mlp", "adaln"])
@pytest.mark.parametrize("first", [0, 1, 2, 4])
def test_predicting_in_two_parts_is_predicting_at_once(predictor: str, first: int, lewm: Any) -> None:
    model = lewm(predictor=predictor).eval()
    obs, past, valid = history()
    valid[:, :2] = False
    future = Noise.of(5, 4).at("future").normal(6, 4)
    with torch.no_grad():
        state = model.encode(obs, past, valid)
        whole = model.predict(state, future, NOISE)
        begun = model.predict(state, future[:, :first], NOISE)
        rest = model.predict(begun.final, future[:, first:], NOISE)
        some = model.predict(state, future, NOISE, torch.tensor([6, 0, 3]))
    torch.testing.assert_close(begun.latent, whole.latent[:, : first + 1])
    torch.testing.assert_close(rest.latent, whole.latent[:, first:])
    torch.testing.assert_close(some.latent, whole.latent[:, [6, 0, 3]])
    torch.testing.assert_close(rest.final, whole.final)


def test_decoded_frames_carry_the_name_the_model_looks_at(columns: Any) -> None:
    config = LeWMConfig(
        image_size=16, latent_dim=8, conv_widths=(6, 5), decoder_size=16, decoder_widths=(4, 4), state_dim=3
    )
    model = LeWM(config, config.spec("toy", ACTION, pixels="top"))
    model.fit_statistics(columns())
    shown = model.decode(torch.zeros(2, 8))
    assert sorted(shown) == ["state", "top"] and shown["top"].shape == (2, 3, 16, 16)
    frames = torch.zeros(2, 3, 16, 16, dtype=torch.uint8)
    assert model.embed({"top": frames}).shape == (2, 8)
    with pytest.raises(UsageError, match="'top', which the observation lacks"):
        model.embed({"pixels": frames})


def test_a_model_comes_back_from_its_plain_values_and_weights(lewm: Any) -> None:
    model = lewm(predictor="adaln", **ALL).eval()
    config = model.config
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    other = LeWM.from_config(plain, model.spec).eval()
    assert other.config == config
    other.load_state_dict(model.state_dict())
    obs, past, valid = history()
    with torch.no_grad():
        paths = [each.predict(each.encode(obs, past, valid), past, NOISE).latent for each in (model, other)]
    assert torch.equal(*paths)
    assert torch.equal(model.decode(paths[0][:, 0])["pixels"], other.decode(paths[1][:, 0])["pixels"])


def test_what_it_cannot_look_at_or_act_with_is_refused() -> None:
    config = LeWMConfig()
    with pytest.raises(ConfigError, match="without a specification"):
        LeWM.from_config({}, None)
    with pytest.raises(ConfigError, match="4 choices"):
        LeWM(config, config.spec("toy", ActionSpec(1, choices=4)))
    with pytest.raises(ConfigError, match="pixels None"):
        LeWM(config, replace(config.spec("toy", ACTION), pixels=None))


def test_dropout_of_the_settings_reaches_the_transformer(lewm: Any) -> None:
    shares = {m.p for m in lewm(predictor="adaln", dropout=0.25).modules() if isinstance(m, nn.Dropout)}
    assert shares == {0.25}


def test_constant_actions_are_measured_without_dividing_by_zero(lewm: Any, columns: Any) -> None:
    model = lewm().eval()
    model.fit_statistics({**columns(), "action": np.full((20, 2), 0.5)})
    assert torch.equal(model.normalizer.normalize(torch.full((1, 4), 1.5)), torch.ones(1, 4))
