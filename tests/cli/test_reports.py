"""Reports that commands write, and write again from what lies in a run's folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from worldplan.cli.main import main
from worldplan.errors import MissingExtra


@pytest.fixture(scope="module")
def ranked(made: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ranking of two policies, with one video of each."""
    out = tmp_path_factory.mktemp("ranked") / "rank"
    words = ["rank", f"model={made.model}", f"reader={made.reader}", f"starts={made.starts}", f"out={out}"]
    more = ["policies=[nothing,replay]", "episodes=2", "workers=0", "videos=1", "--quiet"]
    assert main([*words, *more]) == 0
    return out


def test_eval_writes_a_report(made: Any, tmp_path: Path) -> None:
    out = tmp_path / "eval"
    words = ["eval", "policy=replay", "env=tworoom", f"starts={made.starts}", "episodes=2", "workers=0"]
    assert main([*words, f"out={out}", "--quiet"]) == 0
    page = (out / "report.html").read_text()
    assert "replay on tworoom" in page and len(page) > 5_000


def test_a_run_without_the_extra_for_reports_keeps_its_numbers(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise MissingExtra("matplotlib is not installed", fix='pip install "worldplan[report]"')

    monkeypatch.setattr("worldplan.evaluation.report.report", missing)
    out = tmp_path / "eval"
    words = ["eval", "policy=replay", "env=tworoom", f"starts={made.starts}", "episodes=2", "workers=0"]
    assert main([*words, f"out={out}"]) == 0
    assert f"worldplan report {out}" in capsys.readouterr().out
    assert json.loads((out / "result.json").read_text())["success"]["n"] == 2


def test_rank_keeps_what_its_report_shows(ranked: Path) -> None:
    validity = json.loads((ranked / "validity.json").read_text())
    assert validity["pairs"] == 2 and "psnr" in validity["curves"]
    index = json.loads((ranked / "clips" / "clips.json").read_text())
    assert [row["title"].partition(",")[0] for row in index] == ["nothing", "replay"]
    assert all((ranked / "clips" / row["file"]).stat().st_size > 500 for row in index)


def test_the_report_is_written_again_as_it_was(ranked: Path, tmp_path: Path) -> None:
    run = tmp_path / "copy"
    shutil.copytree(ranked, run)
    first = (run / "report.html").read_text()
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    again = (run / "report.html").read_text()
    heading = "Ranking of 2 policies on tworoom"
    assert heading in first
    assert again == first.replace(heading, "Policy evaluation")


def test_a_report_without_validity_and_clips_does_without(ranked: Path, tmp_path: Path) -> None:
    run = tmp_path / "copy"
    shutil.copytree(ranked, run)
    (run / "validity.json").unlink()
    shutil.rmtree(run / "clips")
    assert main(["report", str(run)]) == 0
    assert len((run / "report.html").read_text()) < len((ranked / "report.html").read_text())


@pytest.mark.parametrize("name", ["validity.json", "clips/clips.json"])
@pytest.mark.parametrize("text", ["", "{", "[1]", '{"curves": 3}'])
def test_a_damaged_file_beside_the_records_is_named(
    ranked: Path, tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "copy"
    shutil.copytree(ranked, run)
    before = (run / "report.html").read_text()
    (run / name).write_text(text)
    assert main(["report", str(run)]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error and "found:" in error
    assert (run / "report.html").read_text() == before
