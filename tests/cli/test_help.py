"""What the command says about itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import worldplan
from worldplan.cli import values
from worldplan.cli.main import VERBS, _spelled, main
from worldplan.envs import doctor, pusht

ROOT = Path(__file__).parents[2]
CONFIGS = Path(worldplan.__file__).parent / "configs"
FILES = sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.yaml"))


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_keys_and_choices_and_no_machinery(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: worldplan {verb}") and VERBS[verb] in text
    assert "_self_" not in text and "defaults:\n  -" not in text and not re.search(r"^ *- ", text, re.M)
    if f"{verb}.yaml" in FILES:
        assert all(re.search(rf"^  {key}\b", text, re.M) for key in values.defaults(verb))


@pytest.mark.parametrize(
    ("verb", "group", "default"), [("plan", "planner", "cem"), ("train", "model", "lewm_small")]
)
def test_help_names_what_can_be_chosen_the_default_first(
    verb: str, group: str, default: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main([verb, "--help"])
    others = sorted(path.stem for path in (CONFIGS / group).glob("*.yaml") if path.stem != default)
    assert len(others) > 1
    assert f"\n  {group}={'|'.join([default, *others])}\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", FILES)
def test_every_key_of_a_configuration_is_explained(name: str) -> None:
    before = ""
    for line in (CONFIGS / name).read_text().splitlines():
        if re.match(r"\s*\w+:", line):
            assert before.startswith("#") or "  #" in line, f"{name}: {line}"
        before = line.strip()
    assert yaml.safe_load((CONFIGS / name).read_text())


def test_the_general_help_lists_every_verb_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^  {verb} ", text, re.M) for verb in VERBS) and "130 interrupted" in text


def test_advice_is_spelled_as_it_is_typed() -> None:
    message = (
        "a=True is there\n  expected: x=None\n  found:    a=True\n  try:      overwrite=True, or Truer=1"
    )
    typed = "a=True is there\n  expected: x=null\n  found:    a=True\n  try:      overwrite=true, or Truer=1"
    assert _spelled(message) == typed


def test_a_refusal_to_overwrite_says_what_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.h5").write_bytes(b"")
    assert main(["collect", "env=tworoom", f"out={tmp_path / 'x.h5'}"]) == 2
    error = capsys.readouterr().err
    assert "overwrite=true" in error and "True" not in error


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["list"], ["plan", "model=x", "--cfg"]])
def test_a_reader_that_walks_away_ends_the_command_quietly(
    words: list[str], unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "worldplan", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert said == b""


def test_the_broken_pipe_of_a_worker_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("worldplan.cli.verbs.list.run_plain", broken)
    assert main(["list"]) == 1
    assert "Broken pipe" in capsys.readouterr().err


def test_hints_install_the_simulator_that_the_tests_run_with() -> None:
    pinned = next(
        line
        for line in (ROOT / "requirements" / "no-deps.txt").read_text().splitlines()
        if line.startswith("gym-pusht")
    )
    assert pinned in (ROOT / "pyproject.toml").read_text()
    for hint in (pusht._INSTALL, doctor._PUSHT):
        assert re.findall(r"gym-pusht[=<>]=[\d.]+", hint) == [pinned]
