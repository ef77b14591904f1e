"""Figures: bytes of an SVG or a PNG, drawn without a display.

Colours differ in lightness as well as hue, and every series also has its own marker or line, so that
the figures read without colour. Axes name the quantity, its unit and the number of episodes.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from worldplan.errors import UsageError, require
from worldplan.evaluation.validity import Curve
from worldplan.types import Array, Estimate

Format = Literal["svg", "png"]
Kind = Literal["real", "imagined", "baseline"]

# a report replaces these by its own variables, for dark pages
PALETTE = {
    "ink": "#22262b",
    "soft": "#6a7078",
    "grid": "#dde0e4",
    "real": "#b4451f",
    "imagined": "#0b6fb8",
    "baseline": "#8d939b",
}
_WIDTH = 4.6  # inches; shown at up to 580 px, and still legible at 330
_LINES = ("-", "--", ":", "-.")
_SERIES = ("imagined", "real", "soft", "ink")


@dataclass(frozen=True)
class Bar:
    """One bar: a policy's or baseline's score.

    Attributes:
        name: bars of one name stand together.
        estimate: the score.
        kind: real, imagined or baseline.
    """

    name: str
    estimate: Estimate
    kind: Kind


@dataclass(frozen=True)
class Point:
    """One policy in both places.

    Attributes:
        label: a few characters drawn beside the point.
        real: score in reality.
        imagined: score in the model.
        self_score: drawn hollow.
    """

    label: str
    real: Estimate
    imagined: Estimate
    self_score: bool = False


def success_bars(
    bars: Sequence[Bar],
    *,
    names: Mapping[Kind, str] | None = None,
    rate: bool = True,
    form: Format = "svg",
) -> bytes:
    """Scores as bars with their intervals, baselines in grey.

    Args:
        bars: in the order of drawing, from the top.
        names: what the kinds are called in the legend, e.g. ``{"real": "simulator"}``.
        rate: scores are success rates, drawn in percent; else returns.
        form: svg or png.
    """
    _some(bars, "bars")
    plain: dict[Kind, str] = {"real": "real", "imagined": "imagined", "baseline": "baseline"}
    called = {**plain, **(names or {})}
    order = list(dict.fromkeys(bar.name for bar in bars))
    # each name is a row of one slot per bar, so that bars keep their thickness
    rows = {name: [bar for bar in bars if bar.name == name] for name in order}
    slots = sum(len(row) + 0.7 for row in rows.values())
    with _figure(0.95 + 0.21 * slots, form) as (figure, axes, out):
        drawn: dict[str, Any] = {}
        ticks, top = [], 0.0
        for name in order:
            for offset, bar in enumerate(rows[name]):
                drawn[called[bar.kind]] = _bar(axes, top + offset, bar, 100 if rate else 1)
            ticks.append(top + (len(rows[name]) - 1) / 2)
            top += len(rows[name]) + 0.7
        axes.set_yticks(ticks, [_short(name) for name in order])
        axes.set_ylim(top - 1.2, -0.8)
        unit, count = "success, %" if rate else "return", _count([bar.estimate for bar in bars])
        axes.set_xlabel(f"{unit}   ({count}; lines: {_interval(bars)})")
        if rate:
            axes.set_xlim(0, 100)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        _legend(figure, list(drawn.values()), list(drawn))
    return out.getvalue()


def scatter(
    points: Sequence[Point],
    *,
    real_name: str = "reality",
    rate: bool = True,
    form: Format = "svg",
) -> bytes:
    """Score in the model against the real score, with both intervals and the line of equality."""
    _some(points, "points")
    scale = 100 if rate else 1
    with _figure(_WIDTH * 0.92, form) as (_, axes, out):
        labels: dict[tuple[float, float], list[str]] = {}
        for point in points:
            if (place := _cross(axes, point, scale)) is not None:
                labels.setdefault(place, []).append(point.label)
        for place, here in labels.items():
            text = ", ".join(here)
            axes.annotate(text, place, (4, 3), textcoords="offset points", fontsize=9, zorder=4)
        if rate:
            low, high = -3.0, 103.0
        else:
            ends = [*axes.get_xlim(), *axes.get_ylim()]
            low, high = min(ends), max(ends)
        axes.plot([low, high], [low, high], color=PALETTE["soft"], linewidth=0.8, linestyle="--", zorder=1)
        where = {"transform": axes.transAxes, "ha": "right", "va": "bottom", "fontsize": 8}
        axes.text(0.99, 0.01, "dashed: the same score in both", color=PALETTE["soft"], **where)
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
        axes.set_aspect("equal")
        unit = "success, %" if rate else "return"
        axes.set_xlabel(f"{unit}, in {real_name} ({_count([point.real for point in points])})")
        axes.set_ylabel(f"{unit}, in the model ({_count([point.imagined for point in points])})")
    return out.getvalue()


def by_step(
    curve: Curve, copy: Curve | None = None, *, name: str | None = None, form: Format = "svg"
) -> bytes:
    """A curve of `validity` with its interval, and the first frame kept for comparison."""
    with _figure(2.5, form) as (figure, axes, out):
        # at step 0 both show what was given; PSNR is infinite there
        lines = ((copy, "soft", "--", "first frame kept"), (curve, "imagined", "-", "model"))
        for shown, kind, line, label in lines:
            if shown is None:
                continue
            from_step = slice(1, None) if len(shown.steps) > 1 else slice(None)
            steps, value = shown.steps[from_step], shown.value[from_step]
            marker = "o" if len(steps) < 16 else None
            axes.plot(steps, value, line, color=PALETTE[kind], label=label, marker=marker, markersize=3)
            low, high = shown.low[from_step], shown.high[from_step]
            axes.fill_between(steps, low, high, color=PALETTE[kind], alpha=0.18, linewidth=0)
        fewest, most = int(curve.n.min()), int(curve.n.max())
        count = f"n = {most}" if fewest == most else f"n = {most} falling to {fewest}"
        axes.set_xlabel(f"environment steps after the start   ({count} episodes)")
        axes.set_ylabel(f"{name or curve.name}{f', {curve.unit}' if curve.unit else ''}")
        axes.xaxis.get_major_locator().set_params(integer=True)
        if curve.unit != "dB":
            axes.set_ylim(bottom=0)
        handles, labels = axes.get_legend_handles_labels()
        _legend(figure, handles[::-1], labels[::-1])
    return out.getvalue()


def training_curve(
    series: Mapping[str, tuple[Sequence[float] | Array, Sequence[float] | Array]],
    *,
    unit: str = "loss",
    logarithmic: bool = False,
    form: Format = "svg",
) -> bytes:
    """Values against training steps.

    Args:
        series: name -> (steps, values); values that are not finite leave a gap.
        unit: label of the vertical axis.
        logarithmic: a logarithmic vertical axis, if all values are positive.
        form: svg or png.
    """
    _some(series, "series")
    with _figure(2.7, form) as (figure, axes, out):
        lowest = np.inf
        for index, (name, (steps, values)) in enumerate(series.items()):
            shown = np.asarray(values, np.float64)
            lowest = min(lowest, float(np.nanmin(shown, initial=np.inf)))
            colour = PALETTE[_SERIES[index % len(_SERIES)]]
            style = _LINES[index % len(_LINES)]
            axes.plot(steps, np.where(np.isfinite(shown), shown, np.nan), style, color=colour, label=name)
        if logarithmic and lowest > 0:
            axes.set_yscale("log")
            ticker: Any = require("matplotlib.ticker", "report")
            axes.yaxis.set_major_formatter(ticker.LogFormatter())
            axes.yaxis.set_minor_formatter(ticker.LogFormatter(minor_thresholds=(2, 0.5)))
        axes.set_xlabel("training steps")
        axes.set_ylabel(unit)
        if len(series) > 1:
            _legend(figure, *axes.get_legend_handles_labels())
    return out.getvalue()


@contextlib.contextmanager
def _figure(height: float, form: Format) -> Iterator[tuple[Any, Any, io.BytesIO]]:
    if form not in ("svg", "png"):
        raise UsageError("unknown picture format", expected="svg or png", found=repr(form))
    matplotlib: Any = require("matplotlib", "report")
    # a Figure of its own, without pyplot: no display, no global list of figures
    figures: Any = require("matplotlib.figure", "report")
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": "worldplan",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.labelsize": 9,
        "axes.edgecolor": PALETTE["soft"],
        "axes.labelcolor": PALETTE["ink"],
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.facecolor": "none",
        "figure.facecolor": "none" if form == "svg" else "white",
        "grid.color": PALETTE["grid"],
        "grid.linewidth": 0.7,
        "lines.linewidth": 1.6,
        "text.color": PALETTE["ink"],
        "xtick.color": PALETTE["soft"],
        "xtick.labelcolor": PALETTE["ink"],
        "ytick.color": PALETTE["soft"],
        "ytick.labelcolor": PALETTE["ink"],
        "savefig.dpi": 160,
        "legend.frameon": False,
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(style)
        figure = figures.Figure(figsize=(_WIDTH, height), layout="constrained")
        out = io.BytesIO()
        yield figure, figure.add_subplot(), out
        # no date: the same records give the same bytes
        figure.savefig(out, format=form, metadata={"Date": None} if form == "svg" else None)


def _bar(axes: Any, at: float, bar: Bar, scale: float) -> Any:
    value, low, high = bar.estimate.value, bar.estimate.low, bar.estimate.high
    colour = PALETTE[bar.kind]
    # what happens in the model is an outline, what really happened is solid
    fill = {"facecolor": "none", "hatch": "////"} if bar.kind == "imagined" else {"facecolor": colour}
    drawn = axes.barh(
        at, (value or 0) * scale, height=0.72, edgecolor=colour, linewidth=1.0, alpha=0.85, **fill
    )
    if value is None:
        axes.text(1, at, "not measured", va="center", color=PALETTE["soft"], fontsize=8)
    elif low is not None and high is not None:
        axes.plot([low * scale, high * scale], [at, at], color=PALETTE["ink"], linewidth=1.2, zorder=3)
        axes.plot([low * scale, high * scale], [at, at], "|", color=PALETTE["ink"], markersize=5, zorder=3)
    return drawn


def _cross(axes: Any, point: Point, scale: float) -> tuple[float, float] | None:
    if point.real.value is None or point.imagined.value is None:
        return None
    x, y = point.real.value * scale, point.imagined.value * scale
    colour = PALETTE["baseline"] if point.self_score else PALETTE["imagined"]
    for estimate, across in ((point.real, True), (point.imagined, False)):
        if estimate.low is not None and estimate.high is not None:
            ends = [estimate.low * scale, estimate.high * scale]
            line = (ends, [y, y]) if across else ([x, x], ends)
            axes.plot(*line, color=colour, linewidth=1.0, alpha=0.6, zorder=2)
    fill = "none" if point.self_score else colour
    axes.plot(x, y, "o", markersize=5, markerfacecolor=fill, markeredgecolor=colour, zorder=3)
    return x, y


def _legend(figure: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), fontsize=9)


def _short(name: str, limit: int = 22) -> str:
    return name if len(name) <= limit else f"{name[: limit // 2 - 1]}…{name[-limit // 2 :]}"


def _count(shown: Sequence[Estimate]) -> str:
    counts = [estimate.n for estimate in shown if estimate.n] or [0]
    fewest, most = min(counts), max(counts)
    return f"n = {fewest}" if fewest == most else f"n = {fewest} to {most}"


def _interval(bars: Sequence[Bar]) -> str:
    methods = dict.fromkeys(bar.estimate.method for bar in bars)
    return next(iter(methods)).capitalize() if len(methods) == 1 else "intervals"


def _some(shown: Sequence[Any] | Mapping[str, Any], what: str) -> None:
    if not shown:
        raise UsageError("there is nothing to draw", expected=f"at least one of the {what}")
