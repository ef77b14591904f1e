"""One thread per worker, and what a test needs beyond Python packages.

Tests marked ``sims``, ``render``, ``browser`` or ``gpu`` are skipped with a reason where that is
missing. ``WORLDPLAN_REQUIRE=render,browser`` turns such a skip into a failure, so that a machine that
is meant to run them cannot pass by leaving them out.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import sys

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_DRAW = """
import mujoco, numpy
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 16, 16)
renderer.update_scene(data)
print("drew", renderer.render().shape)
"""


def pytest_configure() -> None:
    """Keeps the workers of a test run from fighting for cores."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(1)
    # a shell that runs the tests in the background ignores Ctrl-C for all its children
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips, or fails, a test whose marker names something that is not here."""
    for marker, missing in (
        ("sims", _no_mujoco),
        ("render", _no_gl),
        ("browser", _no_browser),
        ("gpu", _no_gpu),
    ):
        if item.get_closest_marker(marker) and (reason := missing()):
            _refuse(marker, reason)


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """Words that make ``model=lewm_small`` tiny, for tests of commands."""
    return [
        "model.conv_widths=[8,8]",
        "model.conv_keypoints=4",
        "model.conv_narrow=4",
        "model.conv_features=16",
        "model.latent_dim=8",
        "model.projector_hidden=16",
        "model.predictor_width=16",
        "model.sigreg_directions=8",
        "model.head_hidden=16",
    ]


@pytest.fixture
def browser() -> str:
    """Path of a Chromium; for tests marked ``browser``."""
    if reason := _no_browser():
        _refuse("browser", reason)
    return next(path for name in BROWSERS if (path := shutil.which(name)))


@pytest.fixture
def mujoco_gl(monkeypatch: pytest.MonkeyPatch) -> str:
    """Sets ``MUJOCO_GL`` to a backend that draws here, for this test and its child processes."""
    if reason := _no_gl():
        _refuse("render", reason)
    backend = _gl_backend()
    assert backend is not None
    monkeypatch.setenv("MUJOCO_GL", backend)
    return backend


def _refuse(what: str, reason: str) -> None:
    if what in os.environ.get("WORLDPLAN_REQUIRE", "").split(","):
        pytest.fail(f"WORLDPLAN_REQUIRE asks for {what}: {reason}", pytrace=False)
    pytest.skip(reason)


def _no_mujoco() -> str | None:
    return None if importlib.util.find_spec("mujoco") else "mujoco is not installed: make sims"


def _no_browser() -> str | None:
    return None if any(map(shutil.which, BROWSERS)) else f"none of {', '.join(BROWSERS)} is installed"


def _no_gl() -> str | None:
    if reason := _no_mujoco():
        return reason
    return None if _gl_backend() else "MuJoCo draws neither with EGL nor with OSMesa: make sims"


def _no_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


@functools.cache
def _gl_backend() -> str | None:
    """The first backend that really draws a picture; probed in a process of its own, which may crash."""
    for backend in dict.fromkeys((os.environ.get("MUJOCO_GL", "egl"), "egl", "osmesa")):
        probe = subprocess.run(
            [sys.executable, "-c", _DRAW],
            env={**os.environ, "MUJOCO_GL": backend},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if "drew (16, 16, 3)" in probe.stdout:
            return backend
    return None
