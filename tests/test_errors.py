"""The exception tree: exit codes, messages, pickling, and optional imports."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from worldplan import errors
from worldplan.errors import (
    ConfigError,
    MissingExtra,
    UsageError,
    WorkerError,
    WorldplanError,
    require,
    suggest,
)

TREE = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, WorldplanError)
]


def test_the_docstring_draws_every_class() -> None:
    assert errors.__doc__ is not None
    assert [kind.__name__ for kind in TREE if kind.__name__ not in errors.__doc__] == []


def test_exit_codes() -> None:
    codes = {kind.__name__: kind.exit_code for kind in TREE}
    usage = {"UsageError", "ConfigError", "DataError", "CheckpointError", "ProtocolMismatch", "MissingExtra"}
    assert {name for name, code in codes.items() if code == 2} == usage
    assert {name for name, code in codes.items() if code == 3} == {"Verdict"}
    assert codes["RunError"] == codes["WorkerError"] == 1


def test_a_message_says_what_was_expected_found_and_what_to_do() -> None:
    text = str(UsageError("no start", expected="7 numbers", found="6", fix="add one"))
    assert text.splitlines() == ["no start", "  expected: 7 numbers", "  found:    6", "  try:      add one"]
    assert str(UsageError("no start")) == "no start"


@pytest.mark.parametrize("kind", TREE)
def test_errors_travel_between_processes(kind: type[WorldplanError]) -> None:
    error = kind("what", expected="a", found="b", fix="c")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)


def test_suggestions_name_the_near_or_list_them_all() -> None:
    assert suggest("puhst", ["pusht", "tworoom"]) == "did you mean pusht?"
    assert suggest("zzz", ["b", "a"]) == "one of: a, b"


def test_a_missing_package_names_the_command_that_brings_it() -> None:
    with pytest.raises(MissingExtra) as caught:
        require("no_such_package_here.part", "video")
    assert "no_such_package_here is not installed" in str(caught.value)
    assert 'pip install "worldplan[video]"' in str(caught.value)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    with pytest.raises(MissingExtra, match="make sims"):
        require("no_such_package_here", "sims", "make sims")


def test_a_broken_package_shows_its_own_error_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_package_here.py").write_text("import its_missing_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        MissingExtra, match="installed but fails to import: No module named 'its_missing_dependency'"
    ):
        require("broken_package_here", "x")
    assert "broken_package_here" not in sys.modules


def test_present_modules_are_returned() -> None:
    assert require("json.decoder", "x").__name__ == "json.decoder"


def test_kinds_can_be_caught_by_their_parents() -> None:
    with pytest.raises(UsageError):
        raise ConfigError("x")
    with pytest.raises(errors.RunError):
        raise WorkerError("x")
