"""The guide says what is there: its programs run, its commands exist, its links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from worldplan.cli.main import VERBS, main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gym_pusht")
    monkeypatch.chdir(tmp_path)
    programs = blocks(ROOT / "README.md", "python")
    assert programs, "README shows no Python"
    found: dict[str, object] = {"__name__": "readme"}
    for program in programs:
        exec(program, found)
    episodes = found["episodes"]
    assert isinstance(episodes, list) and len(episodes) == 2
    assert all(episode.meta["success"] in (True, False) for episode in episodes)


def test_quick_start_runs(tmp_path: Path) -> None:
    pytest.importorskip("gym_pusht")
    pytest.importorskip("matplotlib")
    program = "\n".join(blocks(ROOT / "docs/quickstart.md", "python"))
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert (tmp_path / "my-model" / "model.safetensors").exists()


def commands(page: Path) -> list[list[str]]:
    """Lines of fenced blocks that call worldplan, without their comments."""
    text = "\n".join(
        body for name, body in BLOCK.findall(page.read_text(encoding="utf-8")) if name != "python"
    )
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    called = [line.strip().removeprefix("$ ").removeprefix(".venv/bin/") for line in lines]
    return [shlex.split(line, comments=True)[1:] for line in called if line.startswith("worldplan ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not page.exists():
        pytest.skip(f"{page.name} is not shipped here")
    monkeypatch.chdir(tmp_path)
    mentioned = re.findall(r"`worldplan ([a-z]+)", page.read_text(encoding="utf-8"))
    for verb, *words in [*commands(page), *([verb] for verb in mentioned)]:
        assert verb in VERBS, f"no such verb: worldplan {verb}"
        composed = (
            (ROOT / f"worldplan/configs/{verb}.yaml").exists() and words and "..." not in " ".join(words)
        )
        if composed:
            assert main([verb, *words, "--dry-run"]) == 0, (verb, *words, capsys.readouterr().err)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    if not page.exists():
        pytest.skip(f"{page.name} is not shipped here")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE).group(1).split())  # type: ignore[union-attr]
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= known, f"{page.name}: no such target: {sorted(named - known)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_local_links_lead_somewhere(page: Path) -> None:
    if not page.exists():
        pytest.skip(f"{page.name} is not shipped here")
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    missing = [target for target in local if not (page.parent / target).exists()]
    assert not missing, f"{page.name}: {missing}"
