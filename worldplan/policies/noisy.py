"""Any policy with noise on its actions: a ladder of graded quality from one policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from worldplan.errors import ConfigError
from worldplan.seeding import Noise
from worldplan.types import ActionSpec, Carry, Obs, Policy


@dataclass(frozen=True)
class NoisyPolicy:
    """Adds independent normal noise to another policy's actions.

    Attributes:
        policy: whose actions; continuous.
        std: standard deviation in environment units, for all dimensions or one each.
        action: bounds the sum is moved into; None leaves it where it falls.
        name: for records; made of the policy's and `std` where empty.
    """

    policy: Policy
    std: float | tuple[float, ...]
    action: ActionSpec | None = None
    name: str = field(default="")

    def __post_init__(self) -> None:
        """Refuses negative noise and discrete actions."""
        stds = self.std if isinstance(self.std, tuple) else (self.std,)
        if not all(0 <= std < math.inf for std in stds):
            raise ConfigError(
                "std of NoisyPolicy is out of range", expected="0 or more", found=repr(self.std)
            )
        if self.action is not None and self.action.choices is not None:
            raise _discrete(f"{self.action.choices} choices")
        if not self.name:
            inner = getattr(self.policy, "name", type(self.policy).__name__)
            object.__setattr__(self, "name", f"{inner}+noise {self.std}")

    @property
    def requires(self) -> tuple[str, ...]:
        """Keys an observation must have: those of the policy."""
        return tuple(getattr(self.policy, "requires", ()))

    def initial(self, batch_size: int) -> Carry:
        """The carry of the policy."""
        return self.policy.initial(batch_size)

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """The policy's actions ``[B, K, a]`` plus a draw under the name ``"noisy"``.

        The wrapped policy sees the same noise as without the wrapper, and draws at different `std`
        are multiples of each other, so a ladder of policies is compared in pairs.
        """
        actions, carry = self.policy.act(obs, carry, noise)
        if not actions.is_floating_point():
            raise _discrete(f"{actions.dtype} actions of {type(self.policy).__name__}")
        draws = noise.at("noisy").normal(*actions.shape[1:], dtype=actions.dtype, device=actions.device)
        actions = actions + draws * actions.new_tensor(self.std)
        return (self.action.project(actions) if self.action else actions), carry


def _discrete(found: str) -> ConfigError:
    return ConfigError("normal noise needs continuous actions", expected="floating actions", found=found)
