import math
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from worldplan.envs import mujoco_stage, reacher
from worldplan.envs.reacher import Reacher, fingertip
from worldplan.errors import RunError


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ((0.049, -0.049, 5, 5), True),
        ((0.051, 0, 0, 0), False),
        ((0, 0.051, 0, 0), False),
        ((2 * math.pi + 0.01, 0, 0, 0), True),
    ],
)
def test_success_matches_both_joints(change, expected):
    state = np.array([1.0, -0.5, 0, 0])
    assert bool(reacher.success(state, state + np.array(change))) is expected


def test_fingertip_of_known_postures():
    postures = np.array([[0, 0, 0, 0], [math.pi / 2, 0, 0, 0], [0, math.pi / 2, 0, 0]])
    np.testing.assert_allclose(fingertip(postures), [[0.21, 0], [0, 0.21], [0.1, 0.11]], atol=1e-12)
    assert reacher.demanding(postures[0], postures[1]) and not reacher.demanding(postures[0], postures[0])
    assert reacher.progress(postures[0], postures[1]) == pytest.approx(0.5)


@pytest.mark.sims
def test_physics_are_those_of_gymnasium():
    original = gymnasium.make("Reacher-v5").unwrapped
    original.reset(seed=0)
    env = Reacher(pixels=False)
    state = np.array([0.4, -0.7, 0.3, -0.2])
    original.set_state(np.array([*state[:2], 0, 0]), np.array([*state[2:], 0, 0]))
    env.set_state(state)
    for action in np.random.default_rng(0).uniform(-0.2, 0.2, (20, 2)):
        original.step(action)
        env.advance(action)
        expected = np.concatenate((original.data.qpos[:2], original.data.qvel[:2]))
        np.testing.assert_allclose(env.state()[1:], expected[1:], atol=1e-9)
        assert reacher.angle_difference(env.state()[0], expected[0]) < 1e-9
    np.testing.assert_allclose(fingertip(env.state()), original.get_body_com("fingertip")[:2], atol=1e-6)


@pytest.mark.sims
def test_states_are_set_exactly_and_replayed():
    env = Reacher(pixels=False)
    env.reset(seed=0)
    actions, states = np.random.default_rng(1).uniform(-0.3, 0.3, (40, 2)), [env.state()]
    for action in actions:
        env.step(action)
        states.append(env.state())
    obs, _ = env.reset(options={"state": states[10], "goal": states[35]})
    np.testing.assert_array_equal(env.state(), states[10])
    for action in actions[10:35]:
        _, reward, terminated, _, info = env.step(action)
    np.testing.assert_allclose(env.state(), states[35], atol=1e-6)
    assert info["success"] and terminated and reward == 1


@pytest.mark.sims
@pytest.mark.parametrize("backend", ["", "osmesa", "nonsense"])
def test_states_need_no_graphics(backend):
    # whatever MUJOCO_GL says and whatever is installed
    code = """
import os, sys
from worldplan.envs.reacher import Reacher
env = Reacher(pixels=False)
env.reset(seed=0)
assert set(env.step([0.1, 0.0])[0]) == {"state", "goal/state"}
assert "mujoco.egl" not in sys.modules
"""
    import os

    subprocess.run([sys.executable, "-c", code], env={**os.environ, "MUJOCO_GL": backend}, check=True)


@pytest.mark.sims
def test_no_graphics_is_said_clearly(monkeypatch):
    monkeypatch.setattr(mujoco_stage, "backend", lambda: "nowhere")
    with pytest.raises(RunError, match="nowhere failed(.|\n)*worldplan doctor"):
        mujoco_stage._stage.__wrapped__(reacher._model(), 0, 0)


@pytest.mark.sims
@pytest.mark.render
def test_frames_show_the_arm_and_hide_the_goal(mujoco_gl):
    env = Reacher(image_size=32, render_mode="rgb_array")
    state = np.array([0.0, 0.0, 0, 0])
    obs, _ = env.reset(options={"state": state, "goal": [2.0, 1.0, 0, 0]})
    other, _ = env.reset(options={"state": state, "goal": [-2.0, 1.0, 0, 0]})
    np.testing.assert_array_equal(obs["pixels"], other["pixels"])
    assert (obs["goal/pixels"] != other["goal/pixels"]).any()
    np.testing.assert_array_equal(obs["goal/pixels"], env.render_state(np.array([2.0, 1.0, 9, 9]), 32))
    # outstretched to the right: the blue link lies on the middle row, right of the centre
    blue = obs["pixels"][..., 2].astype(int) - obs["pixels"][..., 0] > 25
    rows, columns = np.nonzero(blue)
    assert len(rows) > 10 and np.ptp(rows) <= 3 and abs(rows.mean() - 15.5) < 1.5 and columns.min() >= 15
    assert env.render().shape == (256, 256, 3)
