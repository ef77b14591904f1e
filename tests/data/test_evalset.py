from types import SimpleNamespace

import numpy as np
import pytest

from worldplan.data import evalset
from worldplan.errors import DataError

TASK = SimpleNamespace(
    name="counter",
    success=lambda states, goals: states[:, 0] % 5 == 0,
    displacement=lambda states, goals: {"far": np.abs(states - goals)[:, 0]},
)


def build(data, **changes):
    options = {"name": "counter-3", "num_pairs": 12, "goal_offset": 3, "budget": 6, "state_key": "counter"}
    episodes = changes.pop("episodes", [1, 3, 4])
    return evalset.build(data, episodes, TASK, **{**options, **changes})


def test_pairs_come_from_the_given_episodes_in_balance(dataset):
    found = build(dataset([20] * 5))
    assert len(found) == 12 and found.solved > 0
    assert np.unique(found.episode, return_counts=True)[0].tolist() == [1, 3, 4]
    assert np.bincount(found.episode)[[1, 3, 4]].max() <= 6
    np.testing.assert_array_equal(found.states[:, 0], found.step)
    np.testing.assert_array_equal(found.states[:, 1], found.episode)
    np.testing.assert_array_equal(found.goals[:, 0], found.step + 3)
    assert (found.states[:, 0] % 5 != 0).all() and (found.step <= 16).all()
    assert found.states.dtype == np.float64
    expected = found.step[:, None] + np.arange(3)
    np.testing.assert_array_equal(found.actions[..., 1], -expected)
    np.testing.assert_array_equal(found.displacement["far"], np.full(12, 3))
    assert len({(e, s) for e, s in zip(found.episode, found.step, strict=True)}) == 12


def test_sets_are_reproducible_and_survive_the_file(dataset, tmp_path):
    data = dataset([20] * 5)
    first, second = tmp_path / "a #1.npz", tmp_path / "ü.npz"
    evalset.write(first, build(data, seed=1))
    evalset.write(second, build(data, seed=1))
    assert first.read_bytes() == second.read_bytes()
    found, made = evalset.read(first), build(data, seed=1)
    for key in ("states", "goals", "actions", "episode", "step"):
        np.testing.assert_array_equal(getattr(found, key), getattr(made, key), strict=True)
    assert (found.name, found.task, found.goal_offset, found.budget, found.seed) == (
        "counter-3",
        "counter",
        3,
        6,
        1,
    )
    assert found.solved == made.solved and dict(found.about) == dict(made.about)
    np.testing.assert_array_equal(found.displacement["far"], made.displacement["far"])
    assert not np.array_equal(build(data, seed=2).step, made.step)
    with pytest.raises(DataError, match="exists already"):
        evalset.write(first, found)


def test_starts_have_ids_and_seeds_of_their_own(dataset):
    found = build(dataset([20] * 5))
    starts = evalset.starts(found)
    assert len({start.seed for start in starts}) == len({start.id for start in starts}) == 12
    assert starts[2].id == "counter-3/0002"
    np.testing.assert_array_equal(starts[2].goal, found.goals[2])
    assert starts[2].meta["far"] == 3 and starts[2].actions.shape == (3, 2)
    assert [start.seed for start in evalset.starts(found, 4)] == [start.seed for start in starts[:4]]


def test_too_few_pairs_is_an_error_with_counts(dataset):
    data = dataset([20, 3, 5])
    with pytest.raises(DataError, match=r"longest: 5 observations\); 1 more are solved"):
        build(data, episodes=[1, 2])
    assert len(build(data, episodes=[1, 2], num_pairs=1)) == 1
    with pytest.raises(DataError, match="no pairs asked for"):
        build(data, num_pairs=0)


def test_what_is_no_set_is_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"nothing")
    np.savez(tmp_path / "b.npz", states=np.zeros(3))
    np.save(tmp_path / "c.npy", np.zeros(3))
    np.savez(tmp_path / "d.npz", header=np.array({"a": 1}, dtype=object))
    for name in ("a.npz", "b.npz", "c.npy", "d.npz"):
        with pytest.raises(DataError, match="no evaluation set"):
            evalset.read(tmp_path / name)
    with pytest.raises(DataError, match="no such file"):
        evalset.read(tmp_path / "e.npz")


def test_packaged_sets_load_by_name_and_others_by_path() -> None:
    known = evalset.packaged()
    assert {"pusht-25", "tworoom-25", "reacher-25"} <= set(known)
    for name, path in known.items():
        found = evalset.load(name)
        assert found.name == name and len(found) >= 300
        assert len(evalset.load(path)) == len(found)
    with pytest.raises(DataError, match="pusht-25"):
        evalset.load("pusht-52")
