from __future__ import annotations

import numpy as np
import pytest
import torch

from worldplan.errors import DataError, UsageError
from worldplan.models.lewm import LeWM
from worldplan.models.lewm_config import LeWMConfig
from worldplan.models.predictors import histories
from worldplan.models.refine import PredictorTraining, embedded
from worldplan.normalize import Statistics
from worldplan.seeding import Noise
from worldplan.types import ActionSpec, Batch

CONFIG = LeWMConfig(
    image_size=16,
    latent_dim=4,
    context=3,
    frame_skip=2,
    encoder="conv",
    conv_widths=(8, 8),
    conv_features=8,
    projector_hidden=8,
    predictor="mlp",
    predictor_width=16,
    predictor_depth=1,
    rollout_steps=5,
    pixel_head=False,
)


@pytest.fixture
def model():
    made = LeWM(CONFIG, CONFIG.spec("toy", ActionSpec(1, (-1.0,), (1.0,))))
    made.normalizer.fit(Statistics.of(np.array([[-1.0], [0.5], [2.0]]), "action"))
    return made.eval()


@pytest.fixture
def batch():
    draws = Noise.of(1, 5)
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[0, 3:] = False
    return Batch({"latent": draws.at("z").normal(6, 4)}, draws.at("a").normal(5, 2), mask)


def frames(count):
    return np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)


def test_latents_are_those_of_the_model_in_any_blocks(model):
    images = frames(7)
    told = []
    found = embedded(
        model,
        lambda rows: {"pixels": images[rows]},
        7,
        rows_per_call=3,
        progress=lambda *it: told.append(it),
    )
    with torch.no_grad():
        whole = model.embed({"pixels": torch.from_numpy(images).permute(0, 3, 1, 2)})
    np.testing.assert_allclose(found, whole.numpy(), atol=1e-5)
    assert told == [(3, 7), (6, 7), (7, 7)]


def test_the_loss_is_that_of_predictions_fed_back(model, batch):
    training = PredictorTraining(model)
    actions = model.normalizer.normalize(batch.actions)
    latents = batch.obs["latent"]
    # `histories` yields the tracks that begin from 1, 2 and 3 frames, in this order
    for step, known in ((0, 1), (1, 2), (3, 3)):
        errors, count = [], 0
        for index, tracks in histories(model.predictor, latents, actions, 3, 5):
            if index >= known:
                real = batch.mask[:, index - 1]
                errors.append((tracks[known - 1] - latents[:, index]).square().mean(-1)[real].sum())
                count += int(real.sum())
        loss, _ = training.loss(batch, Noise.of(0, 5), step)
        assert loss.item() == pytest.approx((sum(errors) / count).item(), rel=1e-5)


def test_half_of_the_steps_begin_as_planning_does(model):
    known = [PredictorTraining(model).known(step, 5) for step in range(8)]
    assert known == [1, 2, 1, 3, 1, 2, 1, 3]
    assert {PredictorTraining(model).known(step, 1) for step in range(8)} == {1}


def test_what_lies_behind_the_end_of_an_episode_changes_nothing(model, batch):
    training = PredictorTraining(model)
    before = training.loss(batch, Noise.of(0, 5), 0)[0]
    batch.obs["latent"][0, 4:] = 100.0
    assert torch.equal(training.loss(batch, Noise.of(0, 5), 0)[0], before)


def test_only_the_predictor_learns(model, batch):
    training = PredictorTraining(model)
    optimizer = torch.optim.Adam(training.parameters(), 1e-2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    losses = []
    for _ in range(60):
        loss, _ = training.loss(batch, Noise.of(0, 5), 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and all(name.startswith("predictor.") for name in changed)


def test_a_batch_without_latents_is_refused(model, batch):
    with pytest.raises(DataError, match="with_columns"):
        PredictorTraining(model).loss(Batch({}, batch.actions, batch.mask), Noise.of(0, 5), 0)


def test_a_model_in_training_mode_embeds_nothing(model):
    with pytest.raises(UsageError, match="eval"):
        embedded(model.train(), lambda rows: {"pixels": frames(3)[rows]}, 3)
