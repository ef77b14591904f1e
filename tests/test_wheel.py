"""What a user gets: the wheel, built through the sdist and installed outside the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WHEEL_LIMIT = 60 * 2**20
CHECKPOINTS_LIMIT = 40 * 2**20

COMPOSE = """
import json, sys
from importlib import resources
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
import worldplan

folder = resources.files("worldplan") / "configs"
names = sorted(
    str(path.relative_to(folder).with_suffix("")).replace("\\\\", "/") for path in folder.rglob("*.yaml")
)
keys = {}
with initialize_config_module("worldplan.configs", version_base="1.3"):
    for name in names:
        try:
            keys[name] = len(OmegaConf.to_container(compose(name), resolve=False))
        except Exception as error:
            sys.exit(f"{name}.yaml: {type(error).__name__}: {error}")
print(json.dumps({"file": worldplan.__file__, "keys": keys}))
"""


def run(*command: str | Path, **options: object) -> str:
    finished = subprocess.run(  # type: ignore[call-overload]
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    assert finished.returncode == 0, f"{finished.stdout}\n{finished.stderr}"
    return str(finished.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by ``python -m build``, which makes the sdist first and the wheel from that."""
    pytest.importorskip("build")
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    assert len(list(out.glob("*.tar.gz"))) == 1
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the checkout that holds the installed package."""
    target = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", "--target", target, wheel, cwd=target)
    return target


def tracked(folder: str) -> set[str]:
    """Files below `folder` that belong in the wheel."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not {"__pycache__", ".gitkeep"} & set(path.parts) and path.suffix != ".tmp"
    }


def test_wheel_holds_the_whole_package_once(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert len(names) == len(set(names))
    assert {name.split("/")[0].split("-")[0] for name in names} == {"worldplan"}
    missing = tracked("worldplan") - set(names)
    assert not missing, sorted(missing)
    assert "worldplan/py.typed" in names


def test_wheel_holds_the_assets(wheel: Path) -> None:
    assets = {
        f"worldplan/_{name}" for folder in ("checkpoints", "evalsets") for name in tracked(f"assets/{folder}")
    }
    with zipfile.ZipFile(wheel) as archive:
        missing = assets - set(archive.namelist())
    assert not missing, sorted(missing)


def test_sizes(wheel: Path) -> None:
    assert wheel.stat().st_size < WHEEL_LIMIT
    checkpoints = (ROOT / name for name in tracked("assets/checkpoints"))
    assert sum(path.stat().st_size for path in checkpoints) < CHECKPOINTS_LIMIT


def test_every_config_composes_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    answer = json.loads(run(sys.executable, "-c", COMPOSE, env=environment, cwd=tmp_path))
    assert Path(answer["file"]).is_relative_to(installed)
    shipped = {
        path.relative_to(ROOT / "worldplan/configs").with_suffix("").as_posix()
        for path in (ROOT / "worldplan/configs").rglob("*.yaml")
    }
    assert set(answer["keys"]) == shipped
    assert shipped, "no configuration is shipped"


def test_command_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    assert "worldplan" in run(sys.executable, "-m", "worldplan", "--help", env=environment, cwd=tmp_path)
    command = run(installed / "bin" / "worldplan", "--version", env=environment, cwd=tmp_path)
    assert command == run(sys.executable, "-m", "worldplan", "--version", env=environment, cwd=tmp_path)
