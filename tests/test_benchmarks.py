"""The benchmarks run, and the table says what their files say and nothing else."""

from __future__ import annotations

import importlib
import json
import platform
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.__main__").main


def result(name: str, cases: list[dict[str, Any]], quick: bool = False) -> str:
    machine = {"cpu": "Abacus 1", "cores": 3, "threads": 1, "load_average": 0.1, "date": "2001-02-03"}
    machine |= {"python": "3.11.0", "torch": "2.6.0", "system": "Linux"}
    setting = {"samples": 300, "image": [64, 64], "GFLOP/s": {"fp32": 51.5}}
    return json.dumps(
        {"benchmark": name, "quick": quick, "machine": machine, "setting": setting, "cases": cases}
    )


def test_table_is_made_from_the_files(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spread = {"median": 12345.6, "q1": 0.012345, "q3": 7.0}
    cases = [
        {"case": "small, fp32, 12 of 30 iterations", "repeats": 5, "measures": {"seconds": spread}},
        {"case": "other", "repeats": 2, "measures": {"share": 0.25}},
        {"case": "reacher", "error": "no MuJoCo"},
    ]
    (tmp_path / "planning.json").write_text(result("planning", cases))
    (tmp_path / "windows.json").write_text(result("windows", cases[1:2], quick=True))
    assert command(["--table", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "README.md").read_text()
    assert text in capsys.readouterr().out
    assert "| small, fp32, 12 of 30 iterations | 12,346 [0.0123, 7] | — | 5 |" in text
    assert "| other | — | 0.25 | 2 |" in text
    assert "| reacher: not measured, no MuJoCo | — | — | — |" in text
    assert "samples 300; image 64 x 64; GFLOP/s fp32 51.5" in text
    assert "Abacus 1, 3 cores, 1 thread; Python 3.11.0, PyTorch 2.6.0; 2001-02-03" in text
    windows, planning = text.index("## Windows from disk"), text.index("## CEM decisions")
    assert windows < text.index("Smoke sizes") < planning and text.count("Smoke sizes") == 1
    assert command(["--table", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "README.md").read_text() == text


def test_windows_are_measured(command: Any, tmp_path: Path) -> None:
    assert command(["--only", "windows", "--quick", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "windows.json").read_text()
    found = json.loads(text)
    assert found["quick"] is True and found["machine"]["threads"] == 1
    assert found["machine"]["cpu"] and found["machine"]["python"] == platform.python_version()
    facts = {"cpu", "cores", "threads", "load_average", "system", "python", "torch", "date"}
    assert set(found["machine"]) == facts and str(tmp_path) not in text
    readers = [each["case"] for each in found["cases"]]
    assert {"Windows, cached", "plain h5py, row by row"} < set(readers)
    for each in found["cases"][:4]:
        spread = each["measures"]["windows per second"]
        assert 0 < spread["q1"] <= spread["median"] <= spread["q3"]
    assert "Smoke sizes" in (tmp_path / "README.md").read_text()


def test_decisions_that_do_not_fit_are_cut_and_say_so(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planning = importlib.import_module("benchmarks.planning")
    planning.main(["--quick", "--seconds", "1e-9", "--precisions", "fp32"])
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert case["case"] == "small, fp32, 1 of 2 iterations" and case["repeats"] == 1
    assert case["measures"]["bound by matrix products in seconds"] > 0
    assert 0 < case["measures"]["share outside the model"]["median"] < 1


def test_unknown_names_and_empty_folders_are_refused(command: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        command(["--only", "windws", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="python -m benchmarks"):
        command(["--table", "--out", str(tmp_path)])
