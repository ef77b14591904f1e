import importlib.metadata
import subprocess
import sys

from worldplan.envs import doctor


def test_it_survives_what_crashes_hangs_and_fails():
    def tried(code, seconds=20.0):
        return doctor._tried("probe", code, {}, seconds, "do this", "numpy")

    crash = tried("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert not crash.is_fine and "killed by signal 11" in crash.found and crash.fix == "do this"
    hang = tried("import time; time.sleep(60)", 0.3)
    assert not hang.is_fine and "no answer after 0.3 s" in hang.found
    error = tried("raise RuntimeError('no display\\n  more')")
    assert not error.is_fine and error.found.endswith("RuntimeError: no display")
    assert tried("pass").is_fine


def test_absent_packages_are_named_with_the_command(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    findings = {finding.name: finding for finding in doctor.examine()}
    assert not any(findings[name].is_fine for name in ("torch", "ffmpeg", "pusht", "reacher"))
    assert "worldplan[pusht]" in findings["pusht"].fix and "--no-deps" in findings["pusht"].fix
    assert findings["torch"].is_needed and not findings["reacher"].is_needed
    assert "drawing with egl" not in findings  # nothing to draw with


def test_osmesa_is_tried_where_egl_fails(monkeypatch):
    def tried(name, code, environment, timeout, fix, package):
        return doctor.Finding(name, environment.get("MUJOCO_GL") != "egl", "tried", fix)

    monkeypatch.setattr(doctor, "_tried", tried)
    monkeypatch.setattr(doctor.platform, "system", lambda: "Linux")
    findings = list(doctor.examine())
    names = [finding.name for finding in findings]
    assert names[-3:] == ["drawing with egl", "drawing with osmesa", "MUJOCO_GL"]
    assert "libegl1" in findings[-3].fix and findings[-1].fix == "export MUJOCO_GL=osmesa"


def test_importing_it_does_nothing():
    code = (
        "import sys; from worldplan.envs import doctor; print({'torch', 'mujoco', 'cv2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
