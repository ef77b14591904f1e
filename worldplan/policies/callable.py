"""Users' own policies: functions from observations to actions, and what ``module:attribute`` names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from worldplan.errors import ConfigError, UsageError, suggest
from worldplan.seeding import Noise
from worldplan.types import ActionSpec, Carry, Obs, Policy


@dataclass(frozen=True)
class CallablePolicy:
    """A function of the observation, without memory.

    Attributes:
        function: maps the observation (tensors with rows B, images ``uint8 [B, 3, h, w]``) to actions
            in environment units: ``[B, a]``, or ``[B, K, a]`` for K of them; a tensor or anything
            NumPy understands.
        action: where given, the number of dimensions is checked.
        name: for records; the function's own where empty.
    """

    function: Callable[[Obs], Any]
    action: ActionSpec | None = None
    name: str = field(default="")

    def __post_init__(self) -> None:
        """Takes over the function's name."""
        if not self.name:
            name = getattr(self.function, "__name__", type(self.function).__name__)
            object.__setattr__(self, "name", name)

    def initial(self, batch_size: int) -> Carry:
        """Nothing is remembered."""
        return {}

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """What the function answers, as ``[B, K, a]``; draws nothing.

        Raises:
            UsageError: the answer has another shape, is not numeric, or is not finite.
        """
        answer = self.function(obs)
        try:
            actions = torch.as_tensor(answer, device=noise.rows.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise self._wrong("numbers", f"{type(answer).__name__} ({error})") from error
        actions = actions[:, None] if actions.ndim == 2 else actions
        dim = self.action.dim if self.action else actions.shape[-1] if actions.ndim == 3 else 0
        if actions.ndim != 3 or len(actions) != noise.batch_size or actions.shape[-1] != dim:
            wanted = dim or "a"
            shapes = f"[{noise.batch_size}, {wanted}] or [{noise.batch_size}, K, {wanted}]"
            raise self._wrong(shapes, str(list(actions.shape)))
        if actions.is_floating_point():
            actions = actions.to(torch.float32)
            if not actions.isfinite().all():
                bad = (~actions.isfinite()).flatten(1).any(1).nonzero()[:, 0].tolist()
                raise self._wrong("finite actions", f"NaN or infinity in rows {bad[:5]}")
        return actions, carry

    def _wrong(self, expected: str, found: str) -> UsageError:
        return UsageError(
            f"the policy {self.name} answered no usable actions", expected=expected, found=found
        )


def from_attribute(path: str) -> Policy:
    """Loads a policy from ``"module:attribute"``.

    The attribute is a policy (it has ``initial`` and ``act``), a class or function that makes one when
    called without arguments, or a function of one argument, the observation, that returns actions as
    `CallablePolicy` takes them.

    The module is imported, so its code runs: name only modules you trust.

    Raises:
        ConfigError: there is no such module or attribute, or it is none of the three.
    """
    found = _attribute(path)
    if isinstance(found, Policy) and not inspect.isclass(found):
        return found
    if not callable(found):
        raise _no_policy(path, f"an object of type {type(found).__name__}")
    if inspect.isclass(found) or _required(found) == 0:
        made = found()
        if isinstance(made, Policy):
            return made
        if callable(made) and _required(made) == 1:
            return CallablePolicy(made, name=path)
        raise _no_policy(path, f"something that makes an object of type {type(made).__name__}")
    if _required(found) == 1:
        return CallablePolicy(found, name=path)
    raise _no_policy(path, f"a function of {_required(found)} arguments")


def _attribute(path: str) -> Any:
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError(
            f"{path!r} names no attribute", expected="module:attribute", found=path, fix="my_policies:make"
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # a module that exists but fails to import something else keeps its own traceback
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise
        raise ConfigError(
            f"there is no module {module_name!r}",
            expected="a module that can be imported from here",
            found=str(error),
            fix="install it, or run from the folder that holds it",
        ) from error
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = (
                [name for name in vars(found) if not name.startswith("_")]
                if hasattr(found, "__dict__")
                else []
            )
            raise ConfigError(
                f"{module_name} has no attribute {attribute!r}",
                expected="a policy, a function that makes one, or a function of an observation",
                found=f"{part!r} is missing",
                fix=suggest(part, known) if known else None,
            )
        found = getattr(found, part)
    return found


def _required(function: Callable[..., Any]) -> int:
    """How many arguments must be given; 1 for built-ins that do not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    given = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return sum(one.default is inspect.Parameter.empty and one.kind not in given for one in parameters)


def _no_policy(path: str, found: str) -> ConfigError:
    return ConfigError(
        f"{path} is no policy",
        expected="an object with initial() and act(), what makes one, or a function obs -> actions",
        found=found,
    )
