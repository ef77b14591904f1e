"""Records survive writing, crashes and odd values, and bad files are named by line."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from worldplan.errors import DataError, UsageError
from worldplan.evaluation import records
from worldplan.types import Array, Episode, EvalRecord, Start

ONE = EvalRecord("pusht", "cem", 3, "s0", "real", 1.0, True, 25, 2.5)


def _episode(source: str = "real", **meta: object) -> Episode:
    return Episode(
        obs={"state": np.zeros((4, 7))},
        actions=np.zeros((3, 2)),
        rewards=np.array([0.0, 0.0, 1.0]),
        terminated=True,
        truncated=False,
        meta={"env": "pusht", "policy": "cem", "seed": 5, "start": "s1", "source": source, "success": True}
        | {"seconds_per_decision": [0.5, 0.25]}
        | meta,
    )


def test_round_trip_keeps_everything(tmp_path: Path) -> None:
    odd = replace(ONE, success=None, policy="ünï\u2028\udc80", meta={"a": np.float32(0.5), "b": np.arange(2)})
    path = records.write(tmp_path / "new folder" / "records.jsonl", [ONE, odd])
    first, second = records.read(path)
    assert first == ONE
    assert second.meta == {"a": 0.5, "b": [0, 1]}
    assert second.policy == odd.policy
    assert second.success is None
    assert [name.name for name in path.parent.iterdir()] == ["records.jsonl"]


def test_nan_in_meta_becomes_null_and_elsewhere_an_error(tmp_path: Path) -> None:
    path = records.write(tmp_path / "r.jsonl", [replace(ONE, meta={"loss": math.nan})])
    assert records.read(path)[0].meta == {"loss": None}
    with pytest.raises(DataError, match="record 1: ret is not finite"):
        records.write(path, [ONE, replace(ONE, ret=math.nan)])
    assert len(records.read(path)) == 1  # the old file stays


def test_append_drops_a_torn_line(tmp_path: Path) -> None:
    path = records.append(tmp_path / "r.jsonl", [ONE])
    with path.open("ab") as file:
        file.write(b'{"task": "pusht", "pol')
    with pytest.raises(DataError, match="line 2 is not JSON"):
        records.read(path)
    records.append(path, [replace(ONE, start="s1"), replace(ONE, start="s2")])
    assert [record.start for record in records.read(path)] == ["s0", "s1", "s2"]


def test_append_survives_a_file_that_is_one_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"x" * 200_000)
    records.append(path, [ONE])
    assert records.read(path) == [ONE]


def _line(**changes: object) -> str:
    data = {"task": "t", "policy": "p", "seed": 0, "start": "s", "source": "real", "ret": 0.0}
    data |= {"success": True, "length": 1, "seconds": 0.1}
    return json.dumps({key: value for key, value in (data | changes).items() if value != "drop"})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 is not a record"),
        (_line(ret="drop"), "line 2 is incomplete(.|\n)*ret"),
        (_line(sucess=True), "unknown field 'sucess'(.|\n)*success"),
        (_line(ret="1"), "line 2: ret has the wrong type"),
        (_line(success=1), "line 2: success has the wrong type"),
        (_line(seed=True), "line 2: seed has the wrong type"),
        (_line(length=-1), "cannot be negative"),
        (_line(source="sim"), "unknown source(.|\n)*'sim'"),
        (_line(source="model"), "line 2 is imagined"),
        (_line(policy=""), "no name"),
        (_line().replace("0.1", "NaN"), "NaN is not a JSON number"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(_line() + "\n" + line + "\n")
    with pytest.raises(DataError, match=message):
        records.read(path)


def test_files_that_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        records.read(tmp_path / "absent.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="holds no records"):
        records.read(tmp_path / "empty.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="UTF-8"):
        records.read(tmp_path / "binary.jsonl")


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for function in (records.write, records.append):
        for path in (tmp_path / "file" / "r.jsonl", tmp_path / "folder"):
            with pytest.raises(UsageError, match="cannot write|is a folder"):
                function(path, [ONE])
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_records_from_episodes() -> None:
    found = list(records.records_from_episodes([_episode(), _episode(start="s2", success=None)], "pusht"))
    assert found[0] == EvalRecord(
        "pusht",
        "cem",
        5,
        "s1",
        "real",
        1.0,
        True,
        3,
        0.75,
        None,
        {"seconds_per_decision": [0.5, 0.25], "terminated": True, "truncated": False},
    )
    assert found[1].success is None  # ended, and still nothing is known about success


@dataclass(frozen=True)
class _Task:
    name: str = "line"

    def demanding(self, states: Array, goals: Array) -> Array:
        return np.abs(states - goals).max(-1) > 1


def test_a_task_says_which_starts_are_demanding() -> None:
    starts = [
        Start("s1", 0, np.zeros(1), np.ones(1) * 2, meta={"block_px": 31.0, "obs": np.ones(4)}),
        Start("s2", 0, np.zeros(1), np.ones(1)),
    ]
    episodes = [_episode(), _episode(start="s2")]
    extra = {"plans_with": "m"}
    far, near = records.records_from_episodes(episodes, _Task(), "mine", starts=starts, meta=extra)
    assert (far.meta["demanding"], near.meta["demanding"]) == (True, False)
    assert far.meta["block_px"] == 31.0
    assert "obs" not in far.meta  # frames stay out of the records
    assert far.meta["plans_with"] == "m"
    assert (far.task, far.policy) == ("line", "mine")


def test_imagined_episodes_name_their_model() -> None:
    with pytest.raises(DataError, match="by which model"):
        list(records.records_from_episodes([_episode("model")], "pusht"))
    assert next(records.records_from_episodes([_episode("model", model="m1")], "pusht")).model == "m1"
    assert next(records.records_from_episodes([_episode("model")], "pusht", model="m2")).model == "m2"
    assert next(records.records_from_episodes([_episode()], "pusht", model="m2")).model is None


def test_episodes_without_a_start_or_source_are_refused() -> None:
    with pytest.raises(DataError, match="episode 0 cannot become a record"):
        list(records.records_from_episodes([_episode("sim")], "pusht"))
