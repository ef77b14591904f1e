"""Unusable input: exit code 2, one message that says what to do, and nothing half-written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from worldplan.cli.main import main

Edit = Callable[[h5py.File], None]


def without(key: str) -> Edit:
    def edit(file: h5py.File) -> None:
        del file[key]

    return edit


def changed(key: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    def edit(file: h5py.File) -> None:
        values = change(file[key][:])
        del file[key]
        file[key] = values

    return edit


def with_nan(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values[3] = np.nan
    return values


def other_env(file: h5py.File) -> None:
    file.attrs["worldplan"] = str(file.attrs["worldplan"]).replace('"env": "tworoom"', '"env": "reacher"')


EDITS: dict[str, Edit] = {
    "nan_action": changed("action", with_nan),
    "nan_state": changed("state", with_nan),
    "no_action": without("action"),
    "no_state": without("state"),
    "no_pixels": without("pixels"),
    "small": changed("pixels", lambda pixels: pixels[:, ::2, ::2].copy()),
    "channels_first": changed("pixels", lambda pixels: pixels.transpose(0, 3, 1, 2).copy()),
    "floats": changed("pixels", lambda pixels: (pixels / 255).astype(np.float32)),
    "grey": changed("pixels", lambda pixels: pixels[..., 0].copy()),
    "wide": changed("action", lambda action: np.concatenate([action, action], 1)),
    "states": changed("state", lambda state: np.concatenate([state, state], 1)),
    "other_env": other_env,
}


@pytest.fixture
def place(
    made: Any, train: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], list[str]]:
    """Works in an empty folder; answers the words of a command with its names filled in.

    ``{name}`` is a damaged file made on the spot; ``{data}``, ``{starts}``, ``{model}`` and ``{reader}``
    are good ones; ``{train}`` stands for the settings of a short training.
    """
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def damaged(name: str) -> Path:
        path = inputs / f"{name}.h5"
        whole = made.data.read_bytes()
        if name in EDITS:
            shutil.copy(made.data, path)
            with h5py.File(path, "r+") as file:
                EDITS[name](file)
        else:
            path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "text": b"not HDF5"}[name])
        return path

    def checkpoint(name: str) -> Path:
        folder = inputs / name
        shutil.copytree(made.model, folder)
        weights, config = folder / "model.safetensors", folder / "config.json"
        if name == "cut_weights":
            weights.write_bytes(weights.read_bytes()[:-100])
        elif name == "no_weights":
            weights.unlink()
        else:
            config.write_bytes(b"" if name == "empty_config" else config.read_bytes()[:-100])
        return folder

    def fill(text: str) -> list[str]:
        words = []
        for word in text.split():
            if word == "{train}":
                words += train
                continue
            key, equals, value = word.partition("=")
            if value.startswith("{"):
                name = value[1:-1]
                known = {key: str(path) for key, path in vars(made).items()}
                made_here = checkpoint if name.endswith(("_weights", "_config")) else damaged
                value = known.get(name) or str(made_here(name))
            words.append(f"{key}{equals}{value}")
        return words

    return fill


ROWS = [
    # data: what is in it
    ("train data={nan_action} out=o {train}", "'action' is not finite in episode 0, step 3"),
    ("train data={nan_state} out=o {train}", "'state' is not finite"),
    ("train data={no_action} out=o {train}", "has no actions"),
    ("train data={no_state} out=o {train}", "no column 'state'"),
    ("train data={no_pixels} out=o {train}", "no column 'pixels'"),
    ("train data={small} out=o {train}", "model.image_size=32"),
    ("train data={channels_first} out=o {train}", "uint8 [3, 64, 64]"),
    ("train data={floats} out=o {train}", "float32 [64, 64, 3]"),
    ("train data={grey} out=o {train}", "rows of shape [64, 64]"),
    ("train data={wide} out=o {train}", "rows of shape [4]"),
    ("train data={states} out=o {train}", "rows of shape [4]"),
    ("train data={data} out=o {train} train.frames=50", "the longest has 21"),
    ("train data={data} out=o {train} held_out=2", "cannot hold out"),
    ("validate model={model} data={nan_action} out=o steps=10", "'action' is not finite"),
    ("validate model={model} data={nan_state} out=o steps=10", "'state' is not finite"),
    ("validate model={model} data={no_action} out=o steps=10", "no column 'action'"),
    ("validate model={model} data={wide} out=o steps=10", "'action' does not fit tworoom"),
    ("validate model={model} data={states} out=o steps=10", "'state' does not fit tworoom"),
    ("validate model={model} data={other_env} out=o steps=10", "expected 'tworoom', found 'reacher'"),
    ("validate model={model} data={data} out=o steps=21", "found:    20 in the longest of 4 episodes"),
    # files: whether they can be read at all
    ("train data={empty} out=o {train}", "an empty file"),
    ("train data={cut} out=o {train}", "truncated"),
    ("train data={text} out=o {train}", "cannot be read as HDF5"),
    ("train data=absent.h5 out=o {train}", "no such file"),
    ("train data=. out=o {train}", "is a folder"),
    ("validate model={model} data={empty} out=o", "an empty file"),
    ("plan model={model} starts={empty} out=o", "no evaluation set"),
    ("plan model={model} starts={data} out=o", "no evaluation set"),
    ("plan model={model} starts=absent.npz out=o", "no evaluation set 'absent.npz'"),
    ("plan model={model} starts={starts} episodes=5 out=o", "at most 4"),
    ("rank model={model} reader={reader} starts={starts} episodes=2 real=absent.csv out=o", "absent.csv"),
    ("rank model={model} reader={reader} starts={starts} episodes=2 real={text} out=o", "is not JSON"),
    # names that nothing has
    ("collect env=towroom out=o.h5", "tworoom"),
    ("collect env=gym:Absent/Absent-v0 out=o.h5", "Absent"),
    ("collect env=absent_module:Env out=o.h5", "absent_module"),
    ("collect env=tworoom policy=absent out=o.h5", "no checkpoint 'absent'"),
    ("collect env=tworoom policy=absent_module:act out=o.h5", "absent_module"),
    ("collect env=tworoom out=o.h5 episode=3", "did you mean episodes"),
    ("plan model={model} out=o planner.samples=3", "planner.num_samples"),
    ("plan model={model} out=o planner=ceem", "did you mean cem"),
    ("plan model=absent out=o", "no checkpoint 'absent'"),
    ("plan model={model} reader={reader} out=o", "plan has no key 'reader'"),
    ("plan model={reader} starts={starts} out=o", "is no world model"),
    ("rank model={model} reader={model} starts={starts} episodes=2 out=o", "is no reader"),
    (
        "rank model={model} reader={reader} starts={starts} episodes=2 policies=random+noiseX out=o",
        "no noise level",
    ),
    ("plan model={model} starts={starts} episodes=2 consistency=0.1 out=o", "consistency=0"),
    # checkpoints that are damaged, or of another environment
    ("plan model={cut_weights} starts={starts} episodes=2 out=o", "damaged or incomplete"),
    ("plan model={no_weights} starts={starts} episodes=2 out=o", "has no weights"),
    ("plan model={cut_config} starts={starts} episodes=2 out=o", "is damaged"),
    ("plan model={empty_config} starts={starts} episodes=2 out=o", "an empty file"),
    ("plan model={model} env=pusht out=o", "expected 'tworoom', found 'pusht'"),
    ("plan model={model} starts=pusht-25 out=o", "the starts belong to another task"),
    ("rank model={model} reader=pusht-reader starts={starts} episodes=2 out=o", "found 'tworoom'"),
    ("rank model={model} reader={reader} starts={starts} episodes=2 scorer=pusht-lewm-second out=o", "pusht"),
    (
        "rank model={model} reader={reader} starts={starts} episodes=2 policies=cem@pusht-lewm-small out=o",
        "found 'tworoom'",
    ),
    ("eval policy=pusht-gcbc env=tworoom starts={starts} episodes=2 out=o", "found 'tworoom'"),
    ("eval policy=scripted env=gym:CartPole-v1 out=o", "expected:"),
    ("collect env=tworoom policy=pusht-gcbc out=o.h5", "found 'tworoom'"),
    ("rollout model={model} reader=pusht-reader starts={starts} episodes=2 out=o.h5", "found 'tworoom'"),
    ("rollout model={model} reader={reader} env=pusht episodes=2 out=o.h5", "found 'pusht'"),
    # combinations: one that is refused stops them all
    ("collect env=tworoom out=o.h5 episodes=1,none steps=5 workers=0 --multirun", "'none'"),
    ("collect env=tworoom out=o.h5 episodes=range( --multirun", "range("),
    ("collect env=tworoom out=o.h5 episodes=interval(0,1) --multirun", "expected: key=a,b,c"),
    ("collect env=tworoom episodes=1,2 --multirun", "collect needs out"),
    ("collect env=tworoom out=o.h5 episodes=1,2", "cannot be composed"),
    ("train data=absent.h5 out=o {train} seed=1,2 --multirun", "no such file"),
]


@pytest.mark.parametrize(("text", "said"), ROWS, ids=[f"{row[0].split()[0]}-{row[1]}" for row in ROWS])
def test_unusable_input_is_refused_with_advice(
    text: str, said: str, place: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = place(text)
    assert main([*words, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert said in error, error
    assert "Traceback" not in error and error.count("worldplan: error:") == 1
    assert "found" in error or "try:" in error, error
    assert not list(Path().iterdir())


@pytest.mark.parametrize("name", ["empty", "cut", "text"])
@pytest.mark.parametrize("action", ["check", "inspect", "split"])
def test_data_names_a_file_that_cannot_be_read(
    name: str, action: str, place: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    path = place(f"data={{{name}}}")[0].partition("=")[2]
    assert main(["data", action, path]) == 2
    error = capsys.readouterr().err
    assert path in error and "found:" in error and "Traceback" not in error


@pytest.mark.parametrize("name", ["nan_action", "nan_state"])
def test_data_check_finds_what_a_training_refuses(
    name: str, place: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    path = place(f"data={{{name}}}")[0].partition("=")[2]
    assert main(["data", "check", path]) == 3
    assert "step 3" in capsys.readouterr().out


def test_every_combination_of_a_sweep_is_written(place: Callable[[str], list[str]]) -> None:
    assert main(place("collect env=tworoom out=o.h5 episodes=1,2 steps=5 workers=0 --multirun --quiet")) == 0
    assert sorted(path.name for path in Path().iterdir()) == ["o-0.h5", "o-1.h5"]


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere"
)
@pytest.mark.parametrize(
    "text",
    [
        "collect env=tworoom out=locked/o.h5",
        "collect env=tworoom out=locked/new/o.h5",
        "train data={data} out=locked {train}",
        "train data={data} out=locked/new {train}",
        "plan model={model} starts={starts} out=locked/new",
        "rollout model={model} reader={reader} starts={starts} episodes=2 out=locked/o.h5",
    ],
)
def test_a_folder_without_permission_is_named(
    text: str, place: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = place(text)
    Path("locked").mkdir(mode=0o555)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "locked" in error and "permission to write" in error and "chmod" in error
    assert not list(Path("locked").iterdir())


def test_odd_characters_in_paths_do_no_harm(
    made: Any, place: Callable[[str], list[str]], train: list[str]
) -> None:
    out = Path("out = ü #2 'y' [b], {c} $d %e")
    data = out / "a=b, c.h5"
    collect = ["collect", "env=tworoom", f"out={data}", "episodes=2", "steps=10", "workers=0", "--quiet"]
    assert main(collect) == 0
    assert main(["train", f"data={data}", f"out={out / 'model'}", *train, "held_out=0.5"]) == 0
    model = out / "model" / "checkpoint"
    planner = ["planner.num_samples=4", "planner.num_iterations=1", "planner.num_elites=2"]
    short = ["episodes=2", "workers=0", "videos=1", "--quiet", f"starts={made.starts}"]
    assert main(["plan", f"model={model}", f"out={out / 'plan'}", "baselines=[]", *planner, *short]) == 0
    ranking = ["rank", f"model={model}", f"reader={made.reader}", f"out={out / 'rank'}", *short]
    assert main([*ranking, "policies=[nothing,random]"]) == 0
    assert main(["report", str(out / "rank")]) == 0
    for run in ("plan", "rank"):
        assert (out / run / "report.html").stat().st_size > 5_000
