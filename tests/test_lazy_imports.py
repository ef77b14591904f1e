"""What is not needed is not imported: answers come at once and simulator workers stay small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HEAVY = ("torch", "mujoco", "h5py", "matplotlib", "diffusers", "hydra", "omegaconf", "tensorboard", "wandb")
REPORT = f"""
import json, sys
print(json.dumps(sorted(set({HEAVY!r}) & set(sys.modules))))
"""


def loaded_after(code: str, **variables: str) -> list[str]:
    """Which heavy packages a fresh interpreter holds after running `code`."""
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code) + REPORT],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    return list(json.loads(finished.stdout.splitlines()[-1]))


def test_package_imports_nothing_heavy() -> None:
    assert loaded_after("import worldplan, worldplan.types, worldplan.errors, worldplan.protocol") == []


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(flag: str) -> None:
    code = f"""
    from worldplan.cli.main import main
    try:
        code = main([{flag!r}])
    except SystemExit as stop:
        code = stop.code
    assert not code, code
    """
    assert loaded_after(code) == []


def test_module_and_command_are_the_same() -> None:
    command = Path(sys.executable).with_name("worldplan")
    ways = [[sys.executable, "-m", "worldplan"], *([[str(command)]] if command.exists() else [])]
    for flag in ("--help", "--version"):
        texts = {
            subprocess.run([*way, flag], capture_output=True, text=True, check=True).stdout for way in ways
        }
        assert len(texts) == 1
        assert texts.pop().strip()


def test_environments_import_nothing_heavy() -> None:
    code = """
    import worldplan.envs.registry, worldplan.envs.vector
    env = worldplan.envs.registry.task("pusht").make(image_size=16, pixels=True, render_mode=None)
    env.reset(seed=0)
    env.close()
    """
    assert loaded_after(code) == []


def test_worker_process_holds_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "spy.py").write_text(
        textwrap.dedent(
            f"""
            import json, pathlib, sys
            from worldplan.envs.pusht import PushT

            def make():
                env = PushT(image_size=16)
                held = sorted(set({HEAVY!r}) & set(sys.modules))
                parent = "parent" in sys.modules
                pathlib.Path({str(tmp_path)!r}, "held.json").write_text(json.dumps([held, parent]))
                return env
            """
        )
    )
    (tmp_path / "parent.py").write_text(
        textwrap.dedent(
            """
            import spy
            from worldplan.envs.vector import SimVectorEnv

            if __name__ == "__main__":
                env = SimVectorEnv(spy.make, 1, workers=1)
                env.reset(seed=[0])
                env.close()
            """
        )
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    subprocess.run(
        [sys.executable, str(tmp_path / "parent.py")],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        timeout=60,
    )
    assert json.loads((tmp_path / "held.json").read_text())[0] == []
