"""Finds out what works on this machine: packages, threads, video, simulators and off-screen drawing.

Whatever may crash, hang or print is tried in a process of its own with a time limit. Importing this
probes nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

PYTHONS = ((3, 11), (3, 13))
_PUSHT = 'pip install "worldplan[pusht]" && pip install --no-deps "gym-pusht==0.1.8"'
_PACKAGES = "apt-get install -y --no-install-recommends"
_DRAW = """
import numpy as np
from worldplan.envs.reacher import Reacher
env = Reacher(image_size=16)
frame = env.reset(seed=0)[0]["pixels"]
assert frame.std() > 0, "the frame is blank"
"""
_PUSH = """
from worldplan.envs.pusht import PushT
env = PushT(image_size=16)
env.reset(seed=0)
env.step([0.1, 0.1])
"""
_SWING = """
from worldplan.envs.reacher import Reacher
env = Reacher(pixels=False)
env.reset(seed=0)
env.step([0.1, 0.1])
"""


@dataclass(frozen=True)
class Finding:
    """What one probe found.

    Attributes:
        name: what was probed.
        is_fine: whether it works.
        found: version, count or error, in one line.
        fix: what to do where it does not work; empty where it does.
        is_needed: whether the base install needs it.
    """

    name: str
    is_fine: bool
    found: str
    fix: str = ""
    is_needed: bool = False


def examine(timeout_seconds: float = 60.0) -> Iterator[Finding]:
    """Yields one finding after the other.

    Args:
        timeout_seconds: how long one probe may take.
    """
    yield _python()
    yield _package("torch", "https://pytorch.org/get-started/locally", is_needed=True)
    yield _package("gymnasium", "pip install gymnasium", is_needed=True)
    yield _threads()
    yield _ffmpeg()
    yield _tried("pusht", _PUSH, {}, timeout_seconds, _PUSHT, "gym-pusht")
    swing = _tried("reacher", _SWING, {}, timeout_seconds, 'pip install "worldplan[mujoco]"', "mujoco")
    yield swing
    if not swing.is_fine:
        return
    if platform.system() != "Linux":
        yield _tried("drawing reacher", _DRAW, {}, timeout_seconds, "see mujoco.org on rendering", "mujoco")
        return
    for backend, packages in (("egl", "libegl1 libgl1 libgl1-mesa-dri"), ("osmesa", "libosmesa6")):
        finding = _tried(
            f"drawing with {backend}",
            _DRAW,
            {"MUJOCO_GL": backend},
            timeout_seconds,
            f"{_PACKAGES} {packages}",
            "mujoco",
        )
        yield finding
        if finding.is_fine and backend != "egl":
            yield Finding("MUJOCO_GL", False, "egl does not work, osmesa does", "export MUJOCO_GL=osmesa")
        if finding.is_fine:
            break


def _python() -> Finding:
    version = sys.version_info[:2]
    low, high = (".".join(map(str, bound)) for bound in PYTHONS)
    is_fine = PYTHONS[0] <= version <= PYTHONS[1]
    fix = "" if is_fine else f"use Python {low} to {high}: the simulators have no packages for others"
    return Finding("python", is_fine, platform.python_version(), fix, is_needed=True)


def _package(name: str, fix: str, is_needed: bool = False) -> Finding:
    try:
        return Finding(name, True, importlib.metadata.version(name), is_needed=is_needed)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", fix, is_needed)


def _threads() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    policy = os.environ.get("OMP_WAIT_POLICY", "")
    found = f"{cores} cores, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}"
    is_fine = policy.upper() == "PASSIVE"
    # waiting threads that spin make training several times slower as soon as a core is shared
    fix = "" if is_fine else "export OMP_WAIT_POLICY=PASSIVE where other processes share the cores"
    return Finding("threads", is_fine, f"{found}, OMP_WAIT_POLICY={policy or 'unset'}", fix)


def _ffmpeg() -> Finding:
    fix = 'pip install "worldplan[video]"'
    try:
        return Finding("ffmpeg", True, f"imageio-ffmpeg {importlib.metadata.version('imageio-ffmpeg')}")
    except importlib.metadata.PackageNotFoundError:
        path = shutil.which("ffmpeg")
        return Finding("ffmpeg", path is not None, path or "none; videos become GIFs", "" if path else fix)


def _tried(
    name: str, code: str, environment: dict[str, str], timeout: float, fix: str, package: str
) -> Finding:
    """Runs code in a process of its own."""
    try:
        version = f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, f"{package} is not installed", fix)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return Finding(name, False, f"{version}; no answer after {timeout:g} s", fix)
    if done.returncode == 0:
        return Finding(name, True, version)
    return Finding(name, False, f"{version}; {_reason(done)}", fix)


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The exception itself, without the traceback above and our own advice below it."""
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}"
    lines = [line for line in done.stderr.splitlines() if line and not line.startswith(" ")]
    return lines[-1].rpartition("worldplan.errors.")[2] if lines else f"exit code {done.returncode}"
