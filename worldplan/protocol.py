"""What training, planning and evaluation must agree on, and the difference printed when they do not.

Two small records travel inside every checkpoint: `ModelSpec`, what the model is fed, and
`EvalProtocol`, how its published result was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from worldplan.errors import CheckpointError, ProtocolMismatch
from worldplan.types import ActionSpec


@dataclass(frozen=True)
class ModelSpec:
    """What a model was trained on and expects to be given.

    Attributes:
        env: name of the environment, e.g. ``"pusht"``.
        obs: key -> shape of one observation without batch and time axes; images ``(3, h, w)``.
        context: C, the most frames `encode` reads.
        frame_skip: k, environment steps per model step.
        action: one environment action; its bounds are in environment units.
        latent_shape: shape of one latent without batch and time axes.
        pixels: key of the image in `obs`, or None for state-based models.
    """

    env: str
    obs: Mapping[str, tuple[int, ...]]
    context: int
    frame_skip: int
    action: ActionSpec
    latent_shape: tuple[int, ...]
    pixels: str | None = "pixels"

    @property
    def action_dim(self) -> int:
        """A = k * a, dimensions of the action of one model step."""
        return self.frame_skip * self.action.dim

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``config.json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelSpec:
        """Inverse of `to_json`; raises `CheckpointError` on unknown or missing fields."""
        try:
            action = dict(data["action"])
            action["low"], action["high"] = tuple(action["low"]), tuple(action["high"])
            obs = {key: tuple(shape) for key, shape in data["obs"].items()}
            rest = {"action": ActionSpec(**action), "obs": obs, "latent_shape": tuple(data["latent_shape"])}
            return cls(**{**data, **rest})
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                "config.json holds no valid model specification", found=f"{type(error).__name__}: {error}"
            ) from error


@dataclass(frozen=True)
class EvalProtocol:
    """How success is measured: the LeWM protocol by default.

    Attributes:
        goal_offset: environment steps between start and goal in the recorded episode.
        budget: environment steps an episode may take.
        success: name of the predicate, e.g. ``"pusht: joint 20 px and pi/9, at any step"``.
        start_set: name of the committed evaluation set, or where the starts came from.
        image_size: height and width of the frames shown.
    """

    goal_offset: int = 25
    budget: int = 50
    success: str = ""
    start_set: str = ""
    image_size: int = 64
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``config.json`` and ``result.json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EvalProtocol:
        """Inverse of `to_json`; raises `CheckpointError` on unknown or ill-typed fields."""
        try:
            return cls(**data)
        except TypeError as error:
            raise CheckpointError(
                "config.json holds no valid evaluation protocol", found=f"{type(error).__name__}: {error}"
            ) from error


def diff(expected: Mapping[str, Any], found: Mapping[str, Any], path: str = "") -> list[str]:
    """Lines ``key: expected X, found Y`` for all leaves that differ; lists and tuples compare alike."""
    lines: list[str] = []
    for key in sorted({*expected, *found}):
        here = f"{path}{key}"
        if key not in found:
            lines.append(f"{here}: expected {expected[key]!r}, found nothing")
        elif key not in expected:
            lines.append(f"{here}: expected nothing, found {found[key]!r}")
        elif isinstance(expected[key], Mapping) and isinstance(found[key], Mapping):
            lines += diff(expected[key], found[key], f"{here}.")
        elif _plain(expected[key]) != _plain(found[key]):
            lines.append(f"{here}: expected {expected[key]!r}, found {found[key]!r}")
    return lines


def require_match(
    expected: Mapping[str, Any], found: Mapping[str, Any], what: str, fix: str | None = None
) -> None:
    """Raises `ProtocolMismatch` with every differing key, or returns."""
    if lines := diff(expected, found):
        raise ProtocolMismatch(f"{what} do not match:\n    " + "\n    ".join(lines), fix=fix)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
