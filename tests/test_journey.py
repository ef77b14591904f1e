"""From episodes to a report by commands alone, in Two-Room with models that learn nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from worldplan import checkpoint
from worldplan.cli import resolve
from worldplan.cli.main import main

SHORT = [
    "train.steps=3",
    "train.refine_steps=2",
    "train.head_steps=2",
    "train.batch_size=8",
    "train.probe_every=0",
    "--quiet",
]
CEM = ["planner.num_samples=8", "planner.num_iterations=2", "planner.num_elites=4"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny: list[str]) -> Path:
    """A folder, with an odd name, of episodes, an evaluation set, a world model and a reader."""
    folder = tmp_path_factory.mktemp("two rooms ü = #1 'x' (a,b)")
    data = folder / "episodes.h5"
    assert (
        main(["collect", "env=tworoom", f"out={data}", "episodes=8", "steps=40", "workers=0", "--quiet"]) == 0
    )
    assert main(["data", "check", str(data)]) == 0
    evaluation = ["held_out=1", "pairs=6", "goal_offset=5", f"out={folder / 'starts.npz'}"]
    assert main(["data", "evalset", str(data), *evaluation]) == 0
    model = ["train", f"data={data}", f"out={folder / 'model'}", *tiny, *SHORT]
    assert main(model) == 0
    small = ["model.widths=[8,8]", "model.keypoints=4", "model.features=16", "model.hidden=16"]
    reader = ["train", "model=reader", f"data={data}", f"out={folder / 'reader'}", "train.frames=2", *small]
    assert main([*reader, *SHORT]) == 0
    return folder


def test_plan_writes_success_baselines_and_a_report(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = made / "plan"
    words = ["plan", f"model={made / 'model' / 'checkpoint'}", f"starts={made / 'starts.npz'}", "episodes=4"]
    assert main([*words, f"out={out}", "workers=0", "videos=1", "true_dynamics=2", "--json", *CEM]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "result.json").read_text())
    assert printed["success"]["n"] == 4 and printed["success"]["low"] is not None
    assert set(printed["baselines"]) == {"nothing", "random", "replay", "true_dynamics"}
    assert printed["baselines"]["replay"]["value"] == 1
    assert printed["seconds_per_decision"]["p50"]["value"] > 0
    assert (out / "report.html").stat().st_size > 10_000


def test_rank_compares_imagination_with_the_simulator(made: Path) -> None:
    out, model = made / "rank", made / "model" / "checkpoint"
    words = [
        "rank",
        f"model={model}",
        f"reader={made / 'reader' / 'checkpoint'}",
        f"starts={made / 'starts.npz'}",
    ]
    policies = "policies=[nothing,random,replay,replay+noise2.0]"
    assert main([*words, f"out={out}", policies, "episodes=6", "workers=0", "videos=1", "--quiet"]) == 0
    result = json.loads((out / "result.json").read_text())
    assert {row["policy"] for row in result["ranking"]} == {"nothing", "random", "replay", "replay+noise2.0"}
    assert result["mmrv"] == {"weight_by": "real", "ties": "simpler"}
    lines = (out / "records.jsonl").read_text().splitlines()
    assert len(lines) == 4 * 6 * 2
    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0
    assert (out / "report.html").stat().st_size > 10_000
    assert main(["compare", "nothing", "replay", str(out)]) in (0, 3)
    assert main(["compare", "replay", "nothing", str(out)]) == 3


def test_checkpoints_are_told_apart_by_their_weights(
    made: Path, tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made / "model" / "checkpoint"
    words = ["train", f"data={made / 'episodes.h5'}", *tiny, *SHORT]
    assert main([*words, f"out={tmp_path / 'other' / 'model'}", "seed=1"]) == 0
    second = tmp_path / "other" / "model" / "checkpoint"  # the same last two parts of its path
    copy = tmp_path / "copy" / "model" / "checkpoint"
    shutil.copytree(first, copy)
    assert resolve.model_name(str(first)) != resolve.model_name(str(second))
    assert resolve.model_name(str(first)) == resolve.model_name(str(copy))
    assert resolve.model_name("pusht-lewm-small") == "pusht-lewm-small"
    moved = tmp_path / "mine"
    shutil.copytree(checkpoint.packaged()["pusht-lewm-small"], moved)
    assert resolve.model_name(str(moved)) == "pusht-lewm-small"

    rank = [
        "rank",
        f"model={first}",
        f"reader={made / 'reader' / 'checkpoint'}",
        f"starts={made / 'starts.npz'}",
    ]
    more = ["episodes=3", "workers=0", "videos=0", "--quiet", f"policies=[random,cem@{first}]"]
    assert main([*rank, *more, f"scorer={copy}", f"out={tmp_path / 'refused'}"]) == 2
    assert "the scorer is the model itself" in capsys.readouterr().err
    assert main([*rank, *more, f"scorer={second}", f"out={tmp_path / 'ranked'}"]) == 0
    rows = json.loads((tmp_path / "ranked" / "result.json").read_text())["ranking"]
    names = [resolve.model_name(str(each)) for each in (first, second)]
    judged = {(row["policy"], row["model"]): row["self_score"] for row in rows}
    assert judged[f"cem@{first}", names[0]] is True
    assert judged[f"cem@{first}", names[1]] is False
    assert judged["random", names[0]] is False


def test_a_resumed_training_keeps_its_log_and_its_finished_parts(
    made: Path, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    words = ["train", f"data={made / 'episodes.h5'}", f"out={out}", *tiny, *SHORT, "train.log_every=1"]
    monkeypatch.setattr("worldplan.models.heads.HeadTraining.loss", _interrupt)
    assert main(words) == 130  # the model is trained, the heads are not
    monkeypatch.undo()
    assert main([*words, "resume=true"]) == 0
    logged = [json.loads(line)["step"] for line in (out / "model" / "metrics.jsonl").read_text().splitlines()]
    assert logged == [1, 2, 3]
    assert (out / "checkpoint" / "model.safetensors").exists()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_imagined_episodes_say_where_they_come_from(made: Path) -> None:
    out = made / "dreams.h5"
    words = ["rollout", f"model={made / 'model' / 'checkpoint'}", f"reader={made / 'reader' / 'checkpoint'}"]
    more = [
        f"starts={made / 'starts.npz'}",
        "policy=random",
        "episodes=3",
        "steps=10",
        f"out={out}",
        "--quiet",
    ]
    assert main([*words, *more]) == 0
    from worldplan.data import native

    dataset = native.open(out)
    assert dataset.attrs["source"] == "model" and all(dataset.meta(i)["model"] for i in range(3))


def test_a_finished_training_refuses_to_be_written_over(
    made: Path, tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", f"data={made / 'episodes.h5'}", f"out={made / 'model'}", *tiny, *SHORT]
    assert main(words) == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["colect"], "did you mean collect"),
        (["collect", "env=pushed", "out=x.h5"], "pusht"),
        (["collect", "env=tworoom", "out=x.h5", "episode=3"], "episodes"),
        (["collect", "env=tworoom"], "out"),
        (["plan", "model=no-such-model"], "no-such-model"),
        (["train", "data=absent.h5"], "absent.h5"),
        (["data", "inspect", "absent.h5"], "absent.h5"),
        (["report", "absent"], "records.jsonl"),
        (["list", "modles"], "models"),
        (["plan", "--jsn"], "--json"),
    ],
)
def test_wrong_use_ends_with_one_message_and_code_2(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error
    assert not list(tmp_path.glob("*.h5"))


def test_damaged_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, cut = tmp_path / "empty.h5", tmp_path / "cut.h5"
    empty.write_bytes(b"")
    cut.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 40)
    for path in (empty, cut):
        assert main(["data", "check", str(path)]) == 2
        assert path.name in capsys.readouterr().err


def test_help_version_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0 and main(["--version"]) == 0 and main(["plan", "--help"]) == 0
    assert main(["list", "envs"]) == 0 and main(["list", "planners", "--json"]) == 0
    printed = capsys.readouterr().out
    assert "tworoom" in printed and "cem" in printed and "exit codes" in printed
