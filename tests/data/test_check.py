import json
from dataclasses import replace

import h5py
import numpy as np
import pytest

from worldplan.data import native
from worldplan.data.check import check
from worldplan.data.inspect import inspect


def broken(data: native.Dataset, key: str, change) -> list:
    data.close()
    with h5py.File(data.path, "a") as file:
        change(file)
    return [fault for fault in check(native.open(data.path)) if fault.key == key]


def test_good_data_has_no_faults(dataset):
    assert check(dataset([5, 6]), required=("pixels", "action")) == []


def test_missing_and_short(dataset):
    missing, short = check(dataset([5, 1, 1]), required=("pixel",))
    assert missing.kind == "missing" and "did you mean pixels" in str(missing)
    assert short.kind == "length" and short.episode == 1 and "2 of 3" in short.message


@pytest.mark.parametrize(
    ("key", "change", "kind", "words"),
    [
        ("action", lambda f: f["action"].__setitem__((7, 0), np.nan), "nan", "episode 1, step 2"),
        ("counter", lambda f: f["counter"].__setitem__((4, 0), np.nan), "nan", "episode 0, step 4"),
        ("reward", lambda f: f["reward"].__setitem__(2, np.inf), "nan", "episode 0, step 2"),
        ("echo", lambda f: f["echo"].__setitem__((slice(None), 1), 3), "constant", "dimension 1"),
        ("pixels", lambda f: f["pixels"].__setitem__(slice(None), 9), "image", "are the same"),
        ("pixels", lambda f: f["pixels"].__setitem__(slice(None), f["pixels"][:] > 3), "image", "above 1"),
        ("step_idx", lambda f: f["step_idx"].__setitem__(6, 5), "index", "step 1 of episode 1"),
        ("terminated", lambda f: f["terminated"].__setitem__(8, True), "flag", "terminated at step 3"),
        ("new", lambda f: f.create_dataset("new", (11, 3, 9, 9), np.uint8), "image", "channels-first"),
        ("new", lambda f: f.create_dataset("new", (11, 9, 9, 3), np.float32), "image", "float images"),
    ],
)  # fmt: skip
def test_each_fault_is_found_where_it_is(dataset, key, change, kind, words):
    (fault,) = broken(dataset([5, 6]), key, change)
    assert fault.kind == kind and words in fault.message


def test_the_summary_is_json_and_explains_keys(tmp_path, episode):
    base = episode(0, 4)
    told = replace(
        base, obs={**base.obs, "words": np.array(["a"] * 4), "goal/state": np.zeros((4, 7), np.float32)}
    )
    data = native.write(tmp_path / "ü #1.h5", [told], attrs={"action": {"unit": "px"}})
    about = json.loads(json.dumps(inspect(data), allow_nan=False))
    assert about["episodes"] == 1 and about["rows"] == 4 and about["transitions"] == 3
    assert about["source"] == {"real": 1} and about["attrs"]["action"] == {"unit": "px"}
    assert about["columns"]["counter"]["max"] == 3 and about["columns"]["counter"]["dtype"] == "float32"
    assert about["columns"]["action"]["nan_rows"] == 1
    assert about["columns"]["pixels"]["sampled"] and about["columns"]["words"]["first"] == "a"
    assert "goal's simulator state" in about["columns"]["goal/state"]["note"]
    assert "led from row t" in about["columns"]["action"]["note"]
    assert [fault["warning"] for fault in about["faults"] if "never changes" in fault["message"]] == [True]


def test_data_without_rewards_is_no_fault(tmp_path, episode):
    data = native.write(
        tmp_path / "a.h5", [replace(episode(i, 4), rewards=np.full(3, np.nan)) for i in range(2)]
    )
    assert check(data) == []
