import pickle
import subprocess
import sys
import textwrap

import gymnasium
import numpy as np
import pytest

from worldplan.envs.registry import task
from worldplan.envs.tworoom import TwoRoom
from worldplan.envs.vector import SimVectorEnv
from worldplan.errors import ConfigError, UsageError, WorkerError
from worldplan.testing.envs import check_env

ACTIONS = np.random.default_rng(0).uniform(-1, 1, (5, 12, 2)).astype(np.float32)


def run(name, workers, pixels=True):
    env = SimVectorEnv(name, 5, workers=workers, image_size=16, pixels=pixels)
    try:
        first, _ = env.reset(seed=[7, 8, 9, 10, 11])
        return first, env.step_chunk(ACTIONS), env.render_states(first["state"], 16)
    finally:
        env.close()


def same(first, second):
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            np.testing.assert_array_equal(first[key], second[key], err_msg=key)
    else:
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", ["tworoom", "pusht"])
def test_workers_change_nothing(name):
    expected = run(name, 0)
    assert expected[1][0]["pixels"].shape == (5, 12, 16, 16, 3)
    for workers in (1, 2):
        first, chunk, frames = run(name, workers)
        same(first, expected[0])
        for got, wanted in zip(chunk, expected[1], strict=True):
            same(got, wanted)
        same(frames, expected[2])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["tworoom", "pusht"])
def test_it_keeps_the_contract(name, workers):
    env = SimVectorEnv(name, 3, workers=workers, image_size=16)
    try:
        assert {"states", "chunks", "ends"} <= set(check_env(env))
    finally:
        env.close()


@pytest.mark.sims
def test_reacher_keeps_the_contract_without_frames():
    env = SimVectorEnv("reacher", 2, pixels=False)
    assert "states" in check_env(env)
    assert set(env.single_observation_space.spaces) == {"state", "goal/state"}


def test_single_rows_equal_single_environments():
    rows = SimVectorEnv("tworoom", 2, image_size=16)
    obs, _ = rows.reset(seed=3)
    alone, _ = TwoRoom(image_size=16).reset(seed=4)
    same({key: value[1] for key, value in obs.items()}, alone)
    one = SimVectorEnv.single("tworoom", image_size=16)
    same(one.reset(seed=4)[0], alone)


def test_finished_rows_are_frozen():
    env = SimVectorEnv("tworoom", 2, image_size=16)
    env.reset(options={"state": [[50, 50], [50, 50]], "goal": [[75, 50], [50, 190]]})
    right = np.tile(np.array([1.0, 0.0], np.float32), (2, 6, 1))
    obs, reward, terminated, truncated, info = env.step_chunk(right)
    # within 16 px after two steps of 5 px
    assert terminated.tolist() == [[False, True, True, True, True, True], [False] * 6]
    assert reward.tolist() == [[0, 1, 0, 0, 0, 0], [0] * 6] and not truncated.any()
    np.testing.assert_array_equal(info["success"], terminated)
    assert obs["state"][0, :, 0].tolist() == [55, 60, 60, 60, 60, 60]
    assert obs["state"][1, :, 0].tolist() == [55, 60, 65, 70, 75, 80]
    # a frozen row may be given anything
    nothing = np.array([[np.nan, np.nan], [0, 0]], np.float32)
    obs, reward, terminated, _, info = env.step(nothing)
    assert obs["state"][0].tolist() == [60, 50] and terminated.tolist() == [True, False]
    assert reward.tolist() == [0, 0] and info["success"].tolist() == [True, False]
    # and starts again alone
    obs, info = env.reset(seed=[1, 2], options={"mask": [True, False]})
    assert obs["state"][1].tolist() == [80, 50] and obs["state"][0].tolist() != [60, 50]
    assert not env.step(np.zeros((2, 2)))[2].any()


def test_chunks_keep_their_first_actions():
    env = SimVectorEnv("tworoom", 5, pixels=False)
    env.reset(seed=0)
    whole = env.step_chunk(ACTIONS[:, :4])
    env.reset(seed=0)
    part = env.step_chunk(ACTIONS, keep=4)
    env.reset(seed=0)
    single = [env.step(ACTIONS[:, step])[0]["state"] for step in range(4)]
    same(whole[0], part[0])
    np.testing.assert_array_equal(np.stack(single, 1), whole[0]["state"])


def test_states_and_goals_may_be_given_for_some_rows():
    env = SimVectorEnv("tworoom", 2, pixels=False)
    obs, _ = env.reset(seed=5, options={"state": [None, np.array([50, 60])], "goal": None})
    drawn, _ = env.reset(seed=5)
    assert obs["state"][1].tolist() == [50, 60]
    np.testing.assert_array_equal(obs["state"][0], drawn["state"][0])
    np.testing.assert_array_equal(obs["goal/state"], drawn["goal/state"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"states": None}, "did you mean state"),
        ({"state": [[50, 50]]}, "2 rows"),
        ({"state": 3}, "single value"),
        ({"goal": [[50, 50], [112, 30]]}, "outside the wall"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_wrong_options_are_refused(options, words, workers):
    env = SimVectorEnv("tworoom", 2, workers=workers, pixels=False)
    try:
        with pytest.raises(UsageError, match=words):
            env.reset(options=options)
        env.reset(seed=0)  # and it goes on working
    finally:
        env.close()


def test_wrong_actions_are_refused():
    env = SimVectorEnv("tworoom", 2, pixels=False)
    with pytest.raises(UsageError, match="before it was reset"):
        env.step(np.zeros((2, 2)))
    with pytest.raises(UsageError, match="first reset"):
        env.reset(options={"mask": [True, False]})
    env.reset(seed=0)
    for actions, words in (
        (np.zeros((3, 2)), "wrong shape"),
        (np.zeros((2, 3)), r"\[2, K, 2\]"),
        (np.array([[0, 0], [0, np.nan]]), "row 1"),
    ):
        with pytest.raises(UsageError, match=words):
            env.step(actions)
    with pytest.raises(UsageError, match="keep"):
        env.step_chunk(np.zeros((2, 3, 2)), keep=0)
    env.close()
    env.close()
    with pytest.raises(UsageError, match="closed"):
        env.reset()


def test_wrong_environments_are_refused():
    with pytest.raises(ConfigError, match="did you mean tworoom"):
        SimVectorEnv("towroom", 1)
    with pytest.raises(UsageError, match="num_envs"):
        SimVectorEnv("tworoom", 0)
    with pytest.raises(UsageError, match="has no names"):
        SimVectorEnv(lambda: gymnasium.make("CartPole-v1"), 1)
    with pytest.raises(UsageError, match="top level of an importable module"):
        SimVectorEnv(lambda: TwoRoom(), 1, workers=1)


@pytest.fixture
def crew_module(tmp_path, monkeypatch):
    """A module that workers can import, and that the test can write."""
    (tmp_path / "crews.py").write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            import numpy as np
            from worldplan.envs.tworoom import TwoRoom

            class Loaded(TwoRoom):
                def __init__(self):
                    super().__init__(pixels=False)
                def state(self):
                    heavy = ("torch", "mujoco", "h5py", "matplotlib", "diffusers", "pymunk")
                    return np.array([50.0 + sum(name in sys.modules for name in heavy), 50.0])

            class Broken(Loaded):
                def advance(self, action):
                    raise ZeroDivisionError("the wheel came off")

            class Killed(Loaded):
                def advance(self, action):
                    os.kill(os.getpid(), signal.SIGKILL)
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_workers_import_neither_torch_nor_the_script(crew_module, tmp_path):
    path = tmp_path / "no_guard.py"
    path.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path.insert(0, {str(crew_module)!r})
            import torch
            print("the script ran")
            from crews import Loaded
            from worldplan.envs.vector import SimVectorEnv
            env = SimVectorEnv(Loaded, 2, workers=2)
            print("heavy", (env.reset(seed=0)[0]["state"][:, 0] - 50).tolist())
            env.close()
            """
        )
    )
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["the script ran", "heavy [0.0, 0.0]"], done.stderr


def test_a_failing_environment_is_named(crew_module):
    from crews import Broken

    env = SimVectorEnv(Broken, 3, workers=2)
    env.reset(seed=0)
    with pytest.raises(WorkerError, match=r"worker 1 of 2 \(rows 0..1\) failed(.|\n)*the wheel came off"):
        env.step(np.zeros((3, 2)))
    assert env.closed


def test_a_dead_worker_is_named(crew_module):
    from crews import Killed

    env = SimVectorEnv(Killed, 3, workers=2)
    env.reset(seed=0)
    with pytest.raises(WorkerError, match=r"worker 1 of 2 \(rows 0..1\) died(.|\n)*SIGKILL"):
        env.step(np.zeros((3, 2)))
    assert env.closed


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent as a signal")
def test_ctrl_c_ends_workers_quietly():
    code = """
        import os, signal, threading
        import numpy as np
        from worldplan.envs.vector import SimVectorEnv
        env = SimVectorEnv("tworoom", 2, workers=2, pixels=False)
        env.reset(seed=0)
        # the whole group, as a terminal does
        threading.Timer(0.3, lambda: os.killpg(0, signal.SIGINT)).start()
        try:
            while True:
                env.step_chunk(np.zeros((2, 50, 2)))
        except KeyboardInterrupt:
            env.close()
            print("ended", [crew._process.exitcode is not None for crew in env._crews])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )
    assert done.stdout.strip() == "ended [True, True]" and not done.stderr, done.stderr


def test_a_task_survives_pickling():
    for name in ("pusht", "tworoom", "reacher"):
        assert pickle.loads(pickle.dumps(task(name))) is task(name)
