"""Validity: how long a model's imagination looks and measures like what really happened.

Frames are compared by PSNR, ``10 log10(255^2 / MSE)``, with the squared error averaged over the
episodes first, so that a few identical frames do not swamp the mean. States are compared by whatever
distances the task names. Both are set beside the simplest prediction there is: that nothing moves and
the first frame stays. A model that does worse at some step is not worth asking there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from worldplan.errors import DataError, UsageError
from worldplan.evaluation import files
from worldplan.evaluation.estimates import CONFIDENCE, bootstrap
from worldplan.types import Array, Episode, Estimate

Errors = Callable[[Array, Array], Mapping[str, Array]]
# where two frames are the same, and PSNR would be infinite
CEILING = 100.0


@dataclass(frozen=True)
class Curve:
    """A quantity by step.

    Attributes:
        name: e.g. ``"psnr"``, or a distance of the task; ``<name>_copy`` is that of the first frame.
        unit: e.g. ``"dB"``.
        steps: ``[S]`` environment steps after the start.
        value: ``[S]`` over the episodes that last so long.
        low: ``[S]`` lower end of the bootstrap interval over episodes; NaN for a single episode.
        high: ``[S]`` upper end.
        n: ``[S]`` number of episodes.
    """

    name: str
    unit: str
    steps: Array
    value: Array
    low: Array
    high: Array
    n: Array


@dataclass(frozen=True)
class Validity:
    """What `validate` found.

    Attributes:
        curves: name -> Curve.
        estimates: ``<name>`` averaged over all steps after the first, ``<name>_copy`` beside it, and
            ``<name>_gain``: how much better than the copy, above 0 is better, paired by episode.
        pairs: number of pairs of episodes.
    """

    curves: Mapping[str, Curve]
    estimates: Mapping[str, Estimate]
    pairs: int

    def to_json(self) -> dict[str, Any]:
        """Plain values; NaN becomes None."""
        found: dict[str, Any] = files.plain(asdict(self), "validity")
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Validity:
        """Inverse of `to_json`; raises `DataError` on anything else."""
        try:
            curves = {}
            for name, curve in data["curves"].items():
                # None, which stood for NaN, becomes NaN again in a float array
                ends = {key: np.array(curve[key], np.float64) for key in ("value", "low", "high")}
                whole = {key: np.array(curve[key], np.int64) for key in ("steps", "n")}
                curves[name] = Curve(str(curve["name"]), str(curve["unit"]), **whole, **ends)
            estimates = {name: Estimate(**value) for name, value in data["estimates"].items()}
            return cls(curves, estimates, int(data["pairs"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError("this is no validity", found=f"{type(error).__name__}: {error}") from error


def distance(first: Array, second: Array) -> dict[str, Array]:
    """Euclidean distance of states ``[..., s]``, for tasks that name no distances of their own."""
    return {"state_error": np.linalg.norm(np.asarray(first) - np.asarray(second), axis=-1)}


def validate(
    real: Iterable[Episode],
    imagined: Iterable[Episode],
    *,
    frames: str | None = "pixels",
    states: str | None = "state",
    errors: Errors = distance,
    units: Mapping[str, str] | None = None,
    every: int = 1,
    seed: int = 0,
    resamples: int = 500,
    confidence: float = CONFIDENCE,
) -> Validity:
    """Compares pairs of episodes that began alike, step by step, up to the shorter one's end.

    Pairs share ``meta["start"]`` and, where both have one, ``meta["policy"]``. Play the same actions
    in both for the model's error alone; with a policy in the loop the actions drift apart too.

    Args:
        real: episodes of the simulator; their observations are kept in memory.
        imagined: episodes of the model, looked at one by one.
        frames: key of the images ``uint8 [T+1, h, w, 3]``, or None.
        states: key of the states ``[T+1, s]``, or None.
        errors: distances of two arrays of states ``[T, s]``, each ``[T]``, e.g. ``task.displacement``.
        units: name of a distance -> its unit, for the figures.
        every: compare each so many steps: the frame-skip, where a model gives no frames between.
        seed: of the bootstrap over episodes, the only thing random here.
        resamples: bootstrap resamples.
        confidence: share of the intervals.

    Raises:
        UsageError: no two episodes pair up, or the sides are swapped.
        DataError: a pair does not compare: no such key, other shapes, numbers that are not finite.
    """
    truth = _by_start(real)
    rows: dict[str, list[Array]] = {}
    pairs = 0
    for episode in imagined:
        if episode.meta.get("source") == "real":
            raise UsageError("an imagined episode says it is real", expected="real first, then imagined")
        if (match := _match(truth, episode)) is not None:
            pairs += 1
            for name, values in _compare(match, episode, frames, states, errors, every).items():
                rows.setdefault(name, []).append(values)
    if not pairs:
        raise UsageError(
            "no imagined episode begins where a real one does",
            expected='pairs of episodes with the same meta["start"]',
            found=f"{len(truth)} real episodes and none to pair them with",
        )
    named = {"mse": "dB", **(units or {})}
    settings = (seed, resamples, confidence)
    curves, estimates = {}, {}
    for name, series in rows.items():
        base = name.removesuffix("_copy")
        shown = name.replace("mse", "psnr", 1) if base == "mse" else name
        curves[shown] = _curve(shown, named.get(base, ""), series, every, settings)
        estimates[shown] = _summary(series, base == "mse", settings)
        if name == base:
            estimates[f"{shown}_gain"] = _gain(series, rows[f"{name}_copy"], base == "mse", settings)
    return Validity(curves, estimates, pairs)


def psnr(squared_error: Array) -> Array:
    """``10 log10(255^2 / MSE)`` in dB of mean squared errors in grey levels, at most 100."""
    with np.errstate(divide="ignore"):
        decibels: Array = np.minimum(10 * np.log10(255.0**2 / np.asarray(squared_error, np.float64)), CEILING)
    return decibels


def _by_start(episodes: Iterable[Episode]) -> dict[str, list[Episode]]:
    found: dict[str, list[Episode]] = {}
    for index, episode in enumerate(episodes):
        if episode.meta.get("source") == "model":
            raise UsageError("a real episode says it is imagined", expected="real first, then imagined")
        if "start" not in episode.meta:
            raise DataError(f"real episode {index} has no start id", expected='meta["start"]')
        found.setdefault(str(episode.meta["start"]), []).append(episode)
    return found


def _match(truth: Mapping[str, list[Episode]], episode: Episode) -> Episode | None:
    policy = episode.meta.get("policy")
    candidates = [
        other
        for other in truth.get(str(episode.meta.get("start")), [])
        if policy is None or other.meta.get("policy") in (None, policy)
    ]
    if len(candidates) > 1:
        raise DataError(
            f"{len(candidates)} real episodes fit the imagined one from start {episode.meta['start']}",
            expected="one for each start and policy",
        )
    return candidates[0] if candidates else None


def _compare(
    real: Episode, imagined: Episode, frames: str | None, states: str | None, errors: Errors, every: int
) -> dict[str, Array]:
    series: dict[str, Array] = {}
    if frames is not None:
        truth, guess = _aligned(real, imagined, frames, every)
        series["mse"], series["mse_copy"] = _squared_error(truth, guess), _squared_error(truth, truth[:1])
    if states is not None:
        truth, guess = _aligned(real, imagined, states, every)
        copied = errors(truth, np.broadcast_to(truth[:1], truth.shape))
        for name, values in errors(truth, guess).items():
            series[name] = np.asarray(values, np.float64)
            series[f"{name}_copy"] = np.asarray(copied[name], np.float64)
    return series


def _aligned(real: Episode, imagined: Episode, key: str, every: int) -> tuple[Array, Array]:
    start = real.meta["start"]
    for kind, episode in (("real", real), ("imagined", imagined)):
        if key not in episode.obs:
            raise DataError(
                f"the {kind} episode from start {start} has no {key!r}",
                expected=f"an observation {key!r}, or {key!r} switched off with None",
                found=", ".join(sorted(episode.obs)),
            )
    truth, guess = real.obs[key][::every], imagined.obs[key][::every]
    if truth.shape[1:] != guess.shape[1:]:
        raise DataError(
            f"{key!r} of the pair from start {start} differs in shape",
            expected=str(truth.shape[1:]),
            found=str(guess.shape[1:]),
        )
    steps = min(len(truth), len(guess))
    truth, guess = np.asarray(truth[:steps], np.float64), np.asarray(guess[:steps], np.float64)
    if not (np.isfinite(truth).all() and np.isfinite(guess).all()):
        raise DataError(f"{key!r} of the pair from start {start} is not finite", expected="finite numbers")
    return truth, guess


def _squared_error(truth: Array, guess: Array) -> Array:
    error: Array = ((truth - guess) ** 2).mean(axis=tuple(range(1, truth.ndim)))
    return error


def _curve(name: str, unit: str, series: list[Array], every: int, settings: tuple[int, int, float]) -> Curve:
    seed, resamples, confidence = settings
    length = max(len(values) for values in series)
    decibels = name in ("psnr", "psnr_copy")
    columns = []
    for step in range(length):
        here = [values[step] for values in series if len(values) > step]
        found = bootstrap(here, seed=seed, resamples=resamples, confidence=confidence)
        ends = [np.nan if end is None else end for end in (found.value, found.low, found.high)]
        # a larger error is a lower PSNR, so the ends change places
        value, low, high = psnr(np.array(ends)[[0, 2, 1]]) if decibels else ends
        columns.append((value, low, high, found.n))
    value, low, high, n = (np.array(column) for column in zip(*columns, strict=True))
    return Curve(name, unit, np.arange(length) * every, value, low, high, n)


def _means(series: list[Array]) -> Array:
    # step 0 is given, not predicted
    return np.array([values[1:].mean() for values in series if len(values) > 1])


def _summary(series: list[Array], decibels: bool, settings: tuple[int, int, float]) -> Estimate:
    statistic = (lambda sample: psnr(sample.mean(1))) if decibels else None
    seed, resamples, confidence = settings
    return bootstrap(_means(series), statistic, seed=seed, resamples=resamples, confidence=confidence)


def _gain(
    series: list[Array], copy: list[Array], decibels: bool, settings: tuple[int, int, float]
) -> Estimate:
    both = np.stack((_means(series), _means(copy)), -1)  # [n, 2]

    def better(sample: Array) -> Array:
        error, copied = np.moveaxis(sample.mean(1), -1, 0)
        gain: Array = psnr(error) - psnr(copied) if decibels else copied - error
        return gain

    seed, resamples, confidence = settings
    return bootstrap(both, better, seed=seed, resamples=resamples, confidence=confidence)
