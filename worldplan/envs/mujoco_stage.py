"""Drawing MuJoCo scenes off screen, one stage per process and thread, created when first needed.

Simulating needs no graphics at all. Drawing needs OpenGL: EGL on Linux, unless the environment variable
``MUJOCO_GL`` says otherwise. Shadows, reflections and multisampling are off, as they cost more than all
the rest in software; frames are drawn twice as large and averaged instead.
"""

from __future__ import annotations

import atexit
import importlib
import os
import platform
import sys
import threading
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from worldplan.errors import RunError, require
from worldplan.types import Array

_SUPERSAMPLE = 2
_LARGEST = 512


def load_mujoco() -> ModuleType:
    """Imports MuJoCo; a graphics backend that `MUJOCO_GL` names and that is broken does not matter.

    Raises:
        MissingExtra: MuJoCo is not installed.
    """
    try:
        return require("mujoco", "mujoco")
    except (AttributeError, OSError, RuntimeError):
        # MuJoCo loads the backend while it is imported, and only an ImportError is survived there
        for name in [name for name in sys.modules if name.partition(".")[0] in ("mujoco", "OpenGL")]:
            del sys.modules[name]
    wanted = os.environ["MUJOCO_GL"]
    os.environ["MUJOCO_GL"] = "disabled"
    try:
        return require("mujoco", "mujoco")
    finally:
        os.environ["MUJOCO_GL"] = wanted


class Stage:
    """An off-screen OpenGL context for one model; use it in the thread that made it.

    Args:
        model: a MuJoCo model.
        backend: ``"egl"``, ``"osmesa"``, ``"glfw"`` or ``"cgl"``.

    Raises:
        RunError: the backend cannot be started here.
    """

    def __init__(self, model: Any, backend: str) -> None:
        self._mujoco = mujoco = load_mujoco()
        self._model, self._data = model, mujoco.MjData(model)
        model.vis.quality.offsamples = 0
        model.vis.global_.offwidth = model.vis.global_.offheight = _SUPERSAMPLE * _LARGEST
        try:
            context = importlib.import_module(f"mujoco.{backend}").GLContext
            self._gl: Any = context(_SUPERSAMPLE * _LARGEST, _SUPERSAMPLE * _LARGEST)
            self._gl.make_current()
            self._scene = mujoco.MjvScene(model, 100)
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        except Exception as error:  # each backend fails in its own way
            raise RunError(
                f"MuJoCo cannot draw here: {backend} failed with {type(error).__name__}: {error}",
                expected="a working OpenGL, e.g. the packages libegl1 libgl1 libgl1-mesa-dri",
                fix="worldplan doctor; or pixels=False, which needs no graphics",
            ) from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag] = 0

    def frame(self, positions: Array, camera: Any, size: int) -> Array:
        """Draws joint ``positions [nq]`` as ``uint8 [size, size, 3]``, at most 512 pixels wide."""
        assert size <= _LARGEST, size
        mujoco, large = self._mujoco, _SUPERSAMPLE * size
        self._data.qpos[:] = positions
        mujoco.mj_forward(self._model, self._data)
        everything = mujoco.mjtCatBit.mjCAT_ALL
        option = mujoco.MjvOption()
        mujoco.mjv_updateScene(self._model, self._data, option, None, camera, everything, self._scene)
        self._gl.make_current()
        area, pixels = mujoco.MjrRect(0, 0, large, large), np.empty((large, large, 3), np.uint8)
        mujoco.mjr_render(area, self._scene, self._context)
        mujoco.mjr_readPixels(pixels, None, area, self._context)
        blocks = pixels[::-1].reshape(size, _SUPERSAMPLE, size, _SUPERSAMPLE, 3)
        return np.asarray(np.rint(blocks.mean((1, 3))), np.uint8)

    def close(self) -> None:
        """Frees what the graphics driver holds."""
        self._context.free()
        self._gl.free()


def backend() -> str:
    """The graphics backend drawing will use: `MUJOCO_GL` where it names one, or the usual one."""
    wanted = os.environ.get("MUJOCO_GL", "").strip().lower()
    if wanted in ("egl", "osmesa", "glfw", "cgl"):
        return wanted
    return {"Linux": "egl", "Darwin": "cgl"}.get(platform.system(), "glfw")


def stage(model: Any) -> Stage:
    """The stage of this model in this process and thread; made on the first call."""
    return _stage(model, os.getpid(), threading.get_ident())


@cache
def _stage(model: Any, process: int, thread: int) -> Stage:
    made = Stage(model, backend())
    atexit.register(made.close)
    return made
