"""Figures are whole pictures that show what they were given."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from worldplan.errors import UsageError
from worldplan.evaluation import figures
from worldplan.evaluation.estimates import wilson
from worldplan.evaluation.validity import Curve
from worldplan.types import Estimate

pytest.importorskip("matplotlib")
NOTHING = Estimate(None, None, None, 0, "wilson 95%")
BARS = [
    figures.Bar("cem", wilson(8, 10), "real"),
    figures.Bar("cem", wilson(6, 10), "imagined"),
    figures.Bar("a name that does not fit beside the axis", wilson(1, 10), "real"),
    figures.Bar("nothing", NOTHING, "baseline"),
]


def _curve(name: str = "psnr", steps: int = 5) -> Curve:
    values = np.linspace(30, 20, steps)
    none = np.full(steps, np.nan)
    return Curve(name, "dB", np.arange(steps) * 5, values, none, none, np.arange(steps, 0, -1))


def _texts(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


def test_bars_name_what_they_show() -> None:
    texts = _texts(figures.success_bars(BARS, names={"real": "simulator", "imagined": "model"}))
    assert {"cem", "nothing", "simulator", "model", "baseline", "not measured"} <= set(texts)
    assert any("n = 10" in text and "Wilson 95%" in text for text in texts)
    assert any(text.startswith("a name tha…") for text in texts)


def test_scatter_labels_points_and_joins_those_that_coincide() -> None:
    points = [
        figures.Point("1", wilson(8, 10), wilson(7, 10)),
        figures.Point("2", wilson(0, 10), wilson(0, 10)),
        figures.Point("3", wilson(0, 10), wilson(0, 10), self_score=True),
        figures.Point("4", NOTHING, wilson(0, 10)),
    ]
    texts = _texts(figures.scatter(points, real_name="the simulator"))
    assert "1" in texts
    assert "2, 3" in texts
    assert "4" not in texts
    assert any("in the simulator (n = 10)" in text for text in texts)


def test_returns_set_their_own_limits() -> None:
    wide = Estimate(-250.0, -300.0, -200.0, 9, "bootstrap 95%")
    assert figures.scatter([figures.Point("1", wide, wide)], rate=False)
    texts = _texts(figures.success_bars([figures.Bar("a", wide, "real")], rate=False))
    assert any(text.startswith("return") for text in texts)


def test_curves_say_how_many_episodes_are_left() -> None:
    texts = _texts(figures.by_step(_curve(), _curve("psnr_copy"), name="frame PSNR"))
    assert "frame PSNR, dB" in texts
    assert any("n = 5 falling to 1 episodes" in text for text in texts)
    assert "first frame kept" in texts
    assert figures.by_step(_curve(steps=1))


def test_training_curves_survive_gaps() -> None:
    svg = figures.training_curve(
        {"train": ([0, 1, 2], [1.0, np.nan, 0.1]), "held out": ([0, 2], [1.0, 0.5])}, logarithmic=True
    )
    assert {"train", "held out", "training steps", "loss"} <= set(_texts(svg))
    assert figures.training_curve({"all missing": ([0, 1], [np.nan, np.nan])}, logarithmic=True)
    assert figures.training_curve({"negative": ([0, 1], [-1.0, 1.0])}, logarithmic=True)


def test_png_is_a_picture() -> None:
    from PIL import Image

    image = Image.open(io.BytesIO(figures.success_bars(BARS, form="png")))
    assert image.width > 600
    assert len(set(np.asarray(image.convert("L")).ravel().tolist())) > 10


def test_the_same_numbers_give_the_same_bytes() -> None:
    assert figures.success_bars(BARS) == figures.success_bars(BARS)
    assert figures.success_bars(BARS, form="png") == figures.success_bars(BARS, form="png")


def test_svg_uses_the_palette_only() -> None:
    """So that a report can replace each colour, for dark pages."""
    svg = figures.success_bars(BARS) + figures.by_step(_curve(), _curve("psnr_copy"))
    found = set(re.findall(r"#[0-9a-f]{6}\b", svg.decode()))
    assert found <= set(figures.PALETTE.values())


def test_nothing_to_draw_is_refused() -> None:
    for draw in (figures.success_bars, figures.scatter, figures.training_curve):
        with pytest.raises(UsageError, match="nothing to draw"):
            draw([])  # type: ignore[operator]
    with pytest.raises(UsageError, match="svg or png"):
        figures.success_bars(BARS, form="pdf")  # type: ignore[arg-type]


def test_plotting_is_imported_when_drawing_and_leaves_no_trace() -> None:
    code = """
import sys
import worldplan.evaluation.report, worldplan.evaluation.videos
loaded = {"matplotlib", "PIL", "imageio_ffmpeg", "torch", "mujoco", "h5py"} & set(sys.modules)
assert not loaded, loaded
import matplotlib
matplotlib.rcParams["font.size"] = 33
from worldplan.evaluation import figures
from worldplan.types import Estimate
figures.success_bars([figures.Bar("a", Estimate(0.5, 0.1, 0.9, 3, "x"), "real")])
assert matplotlib.rcParams["font.size"] == 33
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
