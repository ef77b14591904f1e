"""What a command leaves in its output folder: everything when it ends well, nothing when refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from worldplan.cli.folder import prepare
from worldplan.cli.main import main
from worldplan.errors import UsageError


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its relative path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_training_may_overwrite_an_earlier_one(made: Any, train: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["train", f"data={made.data}", f"out={out}", *train]
    assert main(words) == 0
    (out / "notes.txt").write_text("mine")
    (out / "mine").mkdir()
    assert main([*words, "overwrite=true", "seed=1"]) == 0
    assert (out / "notes.txt").read_text() == "mine" and (out / "mine").is_dir()
    assert json.loads((out / "config.json").read_text())["config"]["seed"] == 1
    assert not list(out.glob(".*"))


def test_a_refused_overwrite_costs_no_earlier_result(
    made: Any, train: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["train", f"out={out}", *train]
    assert main([*words, f"data={made.data}"]) == 0
    before = tree(out)
    assert main([*words, "data=absent.h5", "overwrite=true"]) == 2
    assert "absent.h5" in capsys.readouterr().err
    assert tree(out) == before and not list(out.glob(".*"))
    assert main([*words, "data=absent.h5", "resume=true"]) == 2
    assert tree(out) == before


def test_a_refused_run_leaves_nothing_and_can_be_tried_again(
    made: Any, train: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "folder"
    assert main(["train", "data=absent.h5", f"out={out}", *train]) == 2
    assert not (tmp_path / "new").exists()
    (tmp_path / "there").mkdir()
    assert main(["train", "data=absent.h5", f"out={tmp_path / 'there'}", *train]) == 2
    assert not list((tmp_path / "there").iterdir())
    assert main(["train", f"data={made.data}", f"out={tmp_path / 'there'}", *train]) == 0


def test_another_environment_leaves_nothing(made: Any, tmp_path: Path) -> None:
    out = tmp_path / "plan"
    assert main(["plan", f"model={made.model}", "env=pusht", f"out={out}"]) == 2
    assert not out.exists()


def test_overwrite_and_resume_exclude_each_other(
    made: Any, train: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", f"data={made.data}", f"out={tmp_path / 'run'}", *train]
    assert main([*words, "overwrite=true", "resume=true"]) == 2
    assert "expected: resume=true to go on, or overwrite=true" in capsys.readouterr().err


def test_prepare_clears_what_it_is_told_and_no_more(tmp_path: Path) -> None:
    for name in ("config.json", "records.jsonl", "other.txt"):
        (tmp_path / name).write_text("old")
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "a.gif").write_bytes(b"")
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    os.symlink(elsewhere, tmp_path / "model")
    config = {"out": str(tmp_path), "overwrite": True}
    with prepare(config, "rank", ("records.jsonl", "clips", "model")) as out:
        assert {path.name for path in out.iterdir() if path.name[0] != "."} == {"other.txt"}
        (out / "records.jsonl").write_text("new")
    assert {path.name for path in tmp_path.iterdir()} == {"other.txt", "records.jsonl"}
    assert (elsewhere / "kept").read_text() == "kept"  # a link is cleared, not what it leads to


def test_prepare_keeps_what_a_failed_run_wrote(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("old")
    with (
        pytest.raises(KeyboardInterrupt),
        prepare({"out": str(tmp_path), "overwrite": True}, "rank", ()) as out,
    ):
        (out / "config.json").write_text("new")
        (out / "records.jsonl").write_text("new")
        raise KeyboardInterrupt
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "config.json": "new",
        "records.jsonl": "new",
    }


def test_an_out_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is a file"), prepare({"out": str(tmp_path / "file")}, "plan"):
        pass
    with (
        pytest.raises(UsageError, match="expected:.*permission to write"),
        prepare({"out": str(tmp_path / "file" / "below")}, "plan"),
    ):
        pass
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("verb", ["collect", "rollout"])
def test_where_it_cannot_write_no_simulation_begins(
    verb: str, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def begun(*_: object, **__: object) -> None:
        raise AssertionError("simulated in vain")

    monkeypatch.setattr("worldplan.envs.vector.SimVectorEnv", begun)
    (tmp_path / "file.h5").write_text("mine")
    words = {
        "collect": ["env=tworoom"],
        "rollout": [f"model={made.model}", f"starts={made.starts}", "episodes=1"],
    }[verb]
    for out in (tmp_path / "file.h5", tmp_path / "file.h5" / "below.h5", tmp_path):
        assert main([verb, *words, f"out={out}"]) == 2
        error = capsys.readouterr().err
        assert "expected:" in error and "found:" in error and "try:" in error
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file.h5": "mine"}


def test_an_evaluation_set_may_be_overwritten(
    made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "evalset", str(made.data), "held_out=1", "pairs=2", "goal_offset=5"]
    words.append(f"out={tmp_path / 'starts.npz'}")
    assert main(words) == 0
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*words, "overwrite=true"]) == 0
