import numpy as np
import pytest
import torch

from worldplan.envs.registry import task
from worldplan.envs.simulator_model import SimulatorModel
from worldplan.errors import UsageError
from worldplan.normalize import Normalizer, Statistics
from worldplan.seeding import Noise
from worldplan.types import WorldModel

NOISE = Noise.of(0, 3)
NAMES = pytest.mark.parametrize("name", ["tworoom", "pusht", pytest.param("reacher", marks=pytest.mark.sims)])


def problem(name):
    env = task(name).make(pixels=False)
    states = np.stack([env.reset(seed=seed)[0]["state"] for seed in range(3)])
    actions = np.random.default_rng(0).uniform(-1.2, 1.2, (3, 2, 10))
    return env, torch.from_numpy(states), torch.from_numpy(actions)


@NAMES
def test_it_predicts_what_the_environment_does(name):
    env, states, actions = problem(name)
    model = SimulatorModel(name)
    assert isinstance(model, WorldModel)
    state = model.encode({"state": states[:, None]}, actions[:, :0], torch.ones(3, 1, dtype=torch.bool))
    rollout = model.predict(state, actions, NOISE)
    assert rollout.latent.shape == (3, 3, states.shape[1]) and rollout.steps.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(rollout.latent[:, 0], states.double())
    for row in range(3):
        env.reset(options={"state": states[row].numpy()})
        for step, action in enumerate(actions[row].reshape(10, 2).numpy()):
            env.step(action)
            if step in (4, 9):
                np.testing.assert_array_equal(rollout.latent[row, (step + 1) // 5], env.state())


def test_only_the_wanted_futures_and_going_on_from_the_last():
    _, states, actions = problem("tworoom")
    model = SimulatorModel("tworoom")
    whole = model.predict({"state": states.double()}, actions, NOISE)
    last = model.predict({"state": states.double()}, actions, NOISE, torch.tensor([2]))
    assert torch.equal(last.latent[:, 0], whole.latent[:, 2])
    first = model.predict({"state": states.double()}, actions[:, :1], NOISE, torch.tensor([1]))
    again = model.predict(first.final, actions[:, 1:], NOISE, torch.tensor([1]))
    assert torch.equal(again.latent, last.latent) and torch.equal(again.final["state"], last.latent[:, 0])


@pytest.mark.parametrize("name", ["pusht", "tworoom"])
def test_rows_that_are_not_finite_are_nan(name):
    _, states, actions = problem(name)
    actions[1, 1, 3] = torch.nan
    latent = SimulatorModel(name).predict({"state": states.double()}, actions, NOISE).latent
    assert latent[[0, 2]].isfinite().all() and latent[1, :2].isfinite().all() and latent[1, 2].isnan().all()


def test_workers_change_nothing():
    _, states, actions = problem("pusht")
    expected = SimulatorModel("pusht").predict({"state": states.double()}, actions, NOISE)
    model = SimulatorModel("pusht", workers=2)
    try:
        got = model.predict({"state": states.double()}, actions, NOISE)
        assert torch.equal(got.latent, expected.latent)
        alone = model.predict({"state": states[:1].double()}, actions[:1], NOISE)
        assert torch.equal(alone.latent, expected.latent[:1])
    finally:
        model.close()


def test_model_units():
    _, states, actions = problem("tworoom")
    normalizer = Normalizer(2)
    normalizer.fit(Statistics((0.1, -0.2), (0.5, 0.25), 10))
    expected = SimulatorModel("tworoom").predict({"state": states.double()}, actions, NOISE)
    model = SimulatorModel("tworoom", normalizer=normalizer)
    got = model.predict({"state": states.double()}, normalizer.normalize(actions.float()), NOISE)
    torch.testing.assert_close(got.latent, expected.latent, atol=1e-4, rtol=0)


def test_what_cannot_be_set_cannot_predict():
    with pytest.raises(UsageError, match="states can be set"):
        SimulatorModel("gym:CartPole-v1")
