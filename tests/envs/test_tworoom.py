import math

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import worldplan.envs  # noqa: F401  registers the ids
from worldplan.envs import tworoom
from worldplan.envs.tworoom import DOOR, HIGH, LOW, TwoRoom, is_free, move
from worldplan.errors import UsageError


def places(count, seed=0):
    points = np.random.default_rng(seed).uniform(LOW, HIGH, (3 * count, 2))
    return points[is_free(points)][:count]


def test_no_move_of_any_length_crosses_a_wall():
    start = places(500)
    # up to 200 px at once: the way is walked again in steps of a pixel, with the wall checked by hand
    actions = np.random.default_rng(1).uniform(-40, 40, start.shape)
    end = move(start, actions)
    assert is_free(end).all()
    changed = (start[:, 0] < 112) != (end[:, 0] < 112)
    assert changed.any()
    for begin, action, stop in zip(start[changed], actions[changed], end[changed], strict=True):
        way = begin + np.linspace(0, 1, 400)[:, None] * (np.clip(begin + 5 * action, LOW, HIGH) - begin)
        first_inside = next(p for p in way if abs(p[0] - 112) < 12)
        near_face = 100 if begin[0] < 112 else 124
        # whoever changes rooms met the wall within the opening, or slid into it along the face
        slid = abs(stop[0] - near_face) < 1e-9
        assert abs(first_inside[1] - DOOR) <= 14 + 1 or slid


def test_a_move_stops_at_the_face_and_slides_along_it():
    # 10 px right and 10 px down against the wall, whose face is at x = 100 for the agent's centre
    np.testing.assert_allclose(move(np.array([[95.0, 50.0]]), np.array([[2.0, 2.0]])), [[100, 60]])
    # straight through the door
    np.testing.assert_allclose(move(np.array([[95.0, 112.0]]), np.array([[6.0, 0.0]])), [[125, 112]])
    # in the door, up against its side, which is 14 px from its middle
    np.testing.assert_allclose(move(np.array([[105.0, 112.0]]), np.array([[2.0, -6.0]])), [[115, 98]])
    # out of the world
    np.testing.assert_allclose(move(np.array([[25.0, 25.0]]), np.array([[-9.0, 1.0]])), [[21, 30]])
    # a jump over the whole wall, which checking its end alone would allow
    np.testing.assert_allclose(move(np.array([[90.0, 50.0]]), np.array([[10.0, 0.0]])), [[100, 50]])


def test_many_moves_at_once_equal_single_moves():
    start, actions = places(200), np.random.default_rng(2).uniform(-3, 3, (200, 2))
    single = [move(s[None], a[None])[0] for s, a in zip(start, actions, strict=True)]
    np.testing.assert_array_equal(move(start, actions), single)


def test_walking_along_walls_and_corners_never_gets_inside():
    state, rng = places(300, seed=3), np.random.default_rng(4)
    for _ in range(100):
        state = move(state, rng.choice([-1.0, -0.3, 0.0, 1.0], state.shape))
        assert is_free(state.astype(np.float32)).all()


@pytest.mark.parametrize(("offset", "expected"), [((0, 15.9), True), ((16, 0), False), ((11.4, 11.4), False)])
def test_success_is_closer_than_16_px(offset, expected):
    start = np.array([50.0, 50.0])
    assert bool(tworoom.success(start, start + offset)) is expected
    assert (math.hypot(*offset) < 16) is expected


def test_displacement_and_demanding():
    states, goals = np.array([[50.0, 50.0], [50.0, 50.0]]), np.array([[50.0, 80.0], [150.0, 50.0]])
    asked = tworoom.displacement(states, goals)
    np.testing.assert_allclose(asked["agent_px"], [30, 100])
    np.testing.assert_array_equal(tworoom.demanding(states, goals), [False, True])
    np.testing.assert_allclose(tworoom.progress(states, goals), [0.85, 0.5])


def test_frames_hold_as_much_red_as_the_disc_has_area():
    frame = TwoRoom(image_size=224).render_state(np.array([60.3, 60.7]))
    covered = (255 - frame[..., 1].astype(float)) / (255 - 69)
    inside = covered[40:80, 40:80]
    assert inside.sum() == pytest.approx(math.pi * 7**2, rel=0.01)
    rows, columns = np.indices(inside.shape)
    centre = [(inside * axis).sum() / inside.sum() + 40.5 for axis in (columns, rows)]
    np.testing.assert_allclose(centre, [60.3, 60.7], atol=0.05)


def test_frames_do_not_depend_on_what_is_drawn_beside_them():
    env, states = TwoRoom(image_size=32), np.vstack([places(20), [[0, 0], [300, 300], [np.nan, 1]]])
    together = env.render_states(states, 32)
    assert together.shape == (23, 32, 32, 3)
    np.testing.assert_array_equal(together, [env.render_state(state, 32) for state in states])


def test_episode_ends_at_the_goal_with_reward():
    env = TwoRoom(image_size=16)
    obs, info = env.reset(options={"state": [50, 50], "goal": [72, 50]})
    assert info == {"success": False} and obs["goal/state"].tolist() == [72, 50]
    np.testing.assert_array_equal(obs["goal/pixels"], env.render_state(np.array([72.0, 50.0])))
    _, reward, terminated, _, info = env.step(np.array([1.0, 0.0]))
    assert (reward, terminated, info["success"]) == (0, False, False)
    obs, reward, terminated, truncated, info = env.step(np.array([7.0, 0.0]))  # clipped to 1
    assert obs["state"].tolist() == [60, 50]
    assert (reward, terminated, truncated, info["success"]) == (1, True, False, True)


@pytest.mark.parametrize("state", [[1, 2, 3], [np.nan, 50], [112, 30], [5, 50], "here"])
def test_states_that_cannot_be_are_refused(state):
    with pytest.raises((UsageError, ValueError)):
        TwoRoom(pixels=False).reset(options={"state": state})


def test_actions_that_cannot_be_are_refused():
    env = TwoRoom(pixels=False)
    with pytest.raises(UsageError, match="before its first reset"):
        env.step(np.zeros(2))
    env.reset(seed=0)
    for action in ([np.nan, 0], [0, 0, 0], 1.0):
        with pytest.raises(UsageError, match="action"):
            env.step(np.array(action))
    with pytest.raises(UsageError, match="door"):
        TwoRoom(door=20)


def test_another_door():
    assert move(np.array([[95.0, 60.0]]), np.array([[6.0, 0.0]]), door=60)[0, 0] == 125
    env = TwoRoom(door=60)
    assert (env.reset(seed=0)[0]["pixels"] != TwoRoom().reset(seed=0)[0]["pixels"]).any()


@pytest.mark.filterwarnings("ignore:.*Box observation space")
def test_gymnasium_checks_it():
    env = gymnasium.make("worldplan.envs:worldplan/TwoRoom-v0", image_size=16, render_mode="rgb_array")
    assert env.spec.id == "worldplan/TwoRoom-v0"
    check_env(env.unwrapped)
    assert env.unwrapped.render().shape == (256, 256, 3)
