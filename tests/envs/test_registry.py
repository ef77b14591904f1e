import pickle
from dataclasses import replace

import numpy as np
import pytest

from worldplan.envs.registry import names, task
from worldplan.errors import ConfigError

TASKS = pytest.mark.parametrize("name", ["pusht", "tworoom", pytest.param("reacher", marks=pytest.mark.sims)])


def test_unknown_names_get_a_suggestion():
    assert set(names()) == {"pusht", "tworoom", "reacher"}
    with pytest.raises(ConfigError, match="did you mean pusht"):
        task("push-t")


@TASKS
def test_a_task_describes_its_environment(name):
    known = task(name)
    env = known.make(image_size=16, pixels=False)
    obs, _ = env.reset(seed=0)
    assert obs["state"].shape == (len(known.state_names),)
    assert env.action_space.shape == (known.action.dim,)
    assert (
        tuple(env.action_space.low) == known.action.low and tuple(env.action_space.high) == known.action.high
    )
    assert (known.frame_skip, known.goal_offset, known.budget) == (5, 25, 50)
    assert known.success_text and known.action.unit
    env.close()


@TASKS
def test_predicates_take_any_leading_axes(name):
    known, rng = task(name), np.random.default_rng(0)
    states, goals = rng.uniform(30, 90, (2, 4, 3, len(known.state_names)))
    for function in (known.success, known.demanding):
        assert function(states, goals).shape == (4, 3) and function(states, goals).dtype == bool
        assert np.shape(function(states[0, 0], goals[0, 0])) == ()
    progress = known.progress(states, goals)
    assert progress.shape == (4, 3) and (progress >= 0).all() and (progress <= 1).all()
    assert known.success(states, states).all() and (known.progress(states, states) == 1).all()
    assert not known.demanding(states, states).any()
    assert all(value.shape == (4, 3) for value in known.displacement(states, goals).values())


@TASKS
def test_the_environment_judges_as_the_task_does(name):
    known = task(name)
    env = known.make(pixels=False)
    for seed in range(5):
        obs, info = env.reset(seed=seed)
        assert info["success"] == bool(known.success(obs["state"], obs["goal/state"]))
        _, info = env.reset(options={"state": obs["state"], "goal": obs["state"]})
        assert info["success"]


def test_fast_dynamics_equal_the_environment():
    known = task("tworoom")
    env, rng = known.make(pixels=False), np.random.default_rng(0)
    for seed in range(20):
        env.reset(seed=seed)
        for action in rng.uniform(-1.5, 1.5, (10, 2)):
            expected = known.advance(env.state()[None], action[None])[0]
            env.step(action)
            np.testing.assert_array_equal(env.state(), expected)


@pytest.mark.parametrize("name", ["pusht", "gym:CartPole-v1"])
def test_a_changed_task_stays_changed_in_worker_processes(name):
    changed = replace(task(name), budget=7)
    back = pickle.loads(pickle.dumps(changed))
    assert (back.name, back.budget, back.action) == (name, 7, changed.action)
    assert pickle.loads(pickle.dumps(task("pusht"))) is task("pusht")
