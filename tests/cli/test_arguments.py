"""Words of a command: how they are sorted, and what their values may be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from worldplan.cli import values
from worldplan.cli.arguments import Arguments, listed, parse
from worldplan.cli.job import compose
from worldplan.cli.main import VERBS, main
from worldplan.errors import ConfigError
from worldplan.training import tracking

COMPOSED = ("collect", "demo", "eval", "plan", "rank", "rollout", "train", "validate")


def test_references_never_reach_the_configuration_language() -> None:
    odd = "a folder/with, [commas] = $signs {and} 'quotes'.h5"
    found = parse(["FILE", f"data={odd}", "model.latent_dim=3", "+extra=1", "--json", "--config-dir", "x"])
    assert found.references == {"data": odd}
    assert found.overrides == ("model.latent_dim=3", "+extra=1")
    assert found.words == ("FILE",) and found.json and not found.quiet and found.config_dir == "x"


def test_a_path_that_exists_is_a_word_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seed=1").mkdir()
    assert parse(["seed=1", "seed=2"]).words == ("seed=1",)


@pytest.mark.parametrize(("word", "said"), [("--jsn", "--json"), ("--config-dir", "names no folder")])
def test_unknown_flags_come_with_near_ones(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse([word])


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a,b", ["a", "b"]),
        ("[a, b]", ["a", "b"]),
        ("cem@runs/a(1,2),b", ["cem@runs/a(1,2)", "b"]),
        ("one", ["one"]),
        ("[]", []),
        ("", []),
        ("a,,b,", ["a", "b"]),
    ],
)
def test_lists_are_split_outside_brackets(text: str, items: list[str]) -> None:
    assert listed(text) == items


@pytest.mark.parametrize("verb", COMPOSED)
def test_every_packaged_configuration_fits_itself(verb: str) -> None:
    needed = {key: "x" for key, value in values.defaults(verb).items() if value == "???"}
    composed = compose(verb, Arguments(references=needed))
    assert composed.keys() == values.defaults(verb).keys()
    assert verb in VERBS


@pytest.mark.parametrize("group", ["model", "planner"])
def test_every_choice_of_a_group_fits(group: str) -> None:
    verb, needed = {"model": ("train", {"data": "x"}), "planner": ("plan", {"model": "x"})}[group]
    for name in values.choices(group):
        assert compose(verb, Arguments((f"{group}={name}",), needed))[group]["_target_"]


@pytest.mark.parametrize(
    ("words", "key", "expected", "found"),
    [
        ("collect env=tworoom out=x.h5 episodes=abc", "episodes", "an integer", "'abc'"),
        ("collect env=tworoom out=x.h5 episodes=0", "episodes", "1 or more", "0"),
        ("collect env=tworoom out=x.h5 episodes=-3", "episodes", "1 or more", "-3"),
        ("collect env=tworoom out=x.h5 episodes=2.5", "episodes", "an integer", "2.5"),
        ("collect env=tworoom out=x.h5 episodes=true", "episodes", "an integer", "True"),
        ("collect env=tworoom out=x.h5 episodes=null", "episodes", "an integer", "None"),
        ("collect env=tworoom out=x.h5 episodes=[1]", "episodes", "an integer", "[1]"),
        ("collect env=tworoom out=x.h5 steps=0", "steps", "1 or more", "0"),
        ("collect env=tworoom out=x.h5 workers=-1", "workers", "0 or more", "-1"),
        ("collect env=tworoom out=x.h5 pixels=1", "pixels", "true or false", "1"),
        ("rollout model=x out=x.h5 num_envs=two", "num_envs", "an integer", "'two'"),
        ("eval policy=random seed=abc", "seed", "an integer", "'abc'"),
        ("validate model=x data=x steps=1e3", "steps", "an integer", "1000.0"),
        ("demo train_seconds=0", "train_seconds", "above 0", "0"),
        ("demo train_seconds=soon", "train_seconds", "a number", "'soon'"),
        ("plan model=x episodes=none", "episodes", "an integer", "'none'"),
        ("plan model=x planner.num_samples=many", "planner.num_samples", "an integer", "'many'"),
        ("plan model=x planner=random_shooting planner.horizon=0", "planner.horizon", "1 or more", "0"),
        ("plan model=x execute=abc", "execute", "an integer, or null", "'abc'"),
        ("plan model=x baselines=3", "baselines", "a list", "3"),
        ("plan model=x objective=3", "objective", "text", "3"),
        ("plan model=x planner.init_std=nan", "planner.init_std", "a number", "nan"),
        ("train data=x train.lr=fast", "train.lr", "a number", "'fast'"),
        ("train data=x train.max_seconds=abc", "train.max_seconds", "a number, or null", "'abc'"),
        ("train data=x trackers=[jsonl,tensorbord]", "trackers", "any of: csv", "did you mean tensorboard"),
        ("train data=x held_out=0", "held_out", "above 0", "0"),
        ("train data=x train=3", "train", "train.KEY=value", "3"),
        ("train data=x model=lewm_smal", "lewm_smal", "one of: fast_lewm", ""),
        ("data split x.h5 held_out=abc", "held_out", "a number", "'abc'"),
        ("data evalset x.h5 out=x.npz pairs=0", "pairs", "1 or more", "0"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_key(
    words: str,
    key: str,
    expected: str,
    found: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert key in error.splitlines()[0]
    assert expected in error and found in error and "Traceback" not in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["nothing,replay+noise0.1,cem@a(1,2)", "[nothing, replay+noise0.1, cem@a(1,2)]"]
)
def test_policies_are_a_list_or_separated_by_commas(text: str) -> None:
    assert isinstance(values.defaults("rank")["policies"], list)
    composed = compose("rank", parse(["model=x", f"policies={text}"]))
    assert composed["policies"] == ["nothing", "replay+noise0.1", "cem@a(1,2)"]
    assert compose("plan", parse(["model=x", "baselines=random"]))["baselines"] == ["random"]


@pytest.mark.parametrize(
    ("text", "found"), [("[]", "none"), ("", "none"), ("random,nothing,random", "random more")]
)
def test_a_ranking_of_nobody_or_of_one_twice_is_refused(
    text: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rank", "model=x", f"policies={text}", "--dry-run"]) == 2
    assert f"found:    {found}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value", "default"),
    [
        ("lr", 1, 0.5),
        ("seed", -1, 0),
        ("workers", 0, 2),
        ("max_seconds", None, None),
        ("max_seconds", 3, None),
        ("no_planning", "anything", None),
        ("out", ["anything"], None),
        ("trackers", [], ["jsonl"]),
    ],
)
def test_what_fits_is_accepted(key: str, value: Any, default: Any) -> None:
    values.one(key, value, default)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_are_finite(value: Any) -> None:
    with pytest.raises(ConfigError, match="lr must be a number"):
        values.one("lr", value, 0.1)


@pytest.mark.parametrize(
    ("text", "default", "value"), [("1e-3", 0.1, 1e-3), ("3", 1, 3), ("true", False, True), ("7", "", "7")]
)
def test_words_become_values_of_the_kind_of_their_default(text: str, default: Any, value: Any) -> None:
    assert values.parsed("key", text, default) == value


def test_the_trackers_that_are_known_are_those_there_are() -> None:
    assert sorted(values.WORDS["trackers"]) == sorted(tracking.TRACKERS)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("list models=1", "models=1"),
        ("show pusht-reader model=x", "model=x"),
        ("report run title=x", "title=x"),
        ("doctor seed=1", "seed=1"),
        ("list --multirun", "--multirun"),
        ("data check x.h5 strict=true", "strict=true"),
        ("data inspect x.h5 out=x", "out=x"),
        ("data evalset x.h5 out=x.npz pair=3", "pair=3"),
        ("data split x.h5 model=y", "model=y"),
    ],
)
def test_verbs_without_a_configuration_ignore_no_word(
    words: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert f"found:    {found}" in error and "expected:" in error


@pytest.mark.parametrize(
    ("words", "outs"),
    [
        ("collect env=tworoom out=runs/x.y.h5", ["runs/x.y-0.h5", "runs/x.y-1.h5", "runs/x.y-2.h5"]),
        ("eval policy=random out=runs/x.y", ["runs/x.y/0", "runs/x.y/1", "runs/x.y/2"]),
    ],
)
def test_every_combination_has_a_place_of_its_own(
    words: str, outs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), "episodes=choice(1,2,5)", "--multirun", "--cfg"]) == 0
    printed = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith(("out:", "episodes:"))
    ]
    assert sorted(printed) == sorted(
        [*(f"out: {out}" for out in outs), *(f"episodes: {n}" for n in (1, 2, 5))]
    )


def test_a_key_of_ones_own_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["+mine=anything", "planner.horizon=3"]
    composed = compose("plan", parse(["model=x", *words]))
    assert composed["mine"] == "anything" and composed["planner"]["horizon"] == 3


def test_cfg_prints_what_would_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "env=tworoom", "out=x.h5", "episodes=3", "--cfg"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["episodes"] == 3
