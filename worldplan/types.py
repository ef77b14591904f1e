"""The vocabulary of worldplan: a dozen nouns that every room shares.

A world model predicts; an objective scores a prediction; a planner searches for actions whose
prediction scores well; a policy acts; an environment, real or imagined, answers; episodes
remember; records judge.

Letters, defined once: **B** independent problems, **N** candidates, **C** context frames,
**T** recorded steps, **H** model steps ahead, **S** requested futures, **K** environment steps,
**a** action dimensions of the environment, **A** = k*a action dimensions of one model step (a model
step spans k environment steps: the frame-skip), **D** latent dimensions.

Batch axes come first, time second. Images in an `Obs` are ``uint8 [B, 3, h, w]``, vectors are
float32, a goal travels as ``goal/<key>``. Planners and models speak *model units* (normalised
actions); policies, episodes and batches speak *environment units*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

if TYPE_CHECKING:
    from torch import Tensor

    from worldplan.protocol import ModelSpec
    from worldplan.seeding import Noise

    Obs = Mapping[str, Tensor]
    State = Mapping[str, Tensor]
    Carry = Mapping[str, Any]
else:  # annotations only: importing the vocabulary must not import torch
    Obs = State = Carry = Mapping

GOAL = "goal/"
Source = Literal["real", "model"]


@dataclass(frozen=True)
class Rollout:
    """What a model expects to happen under given actions.

    Attributes:
        latent: ``[B, S, ...]`` predicted latents at `steps`.
        steps: ``[S]`` int64, model steps after the start; 0 is the start itself.
        actions: ``[B, H, A]`` the actions, in model units.
        reward: ``[B, H]`` or None.
        discount: ``[B, H]``, 0 where the model expects the episode to end, or None.
        uncertainty: ``[B, S]`` or None.
        final: state to continue from after H steps, or None when it was not computed.
    """

    latent: Tensor
    steps: Tensor
    actions: Tensor
    reward: Tensor | None = None
    discount: Tensor | None = None
    uncertainty: Tensor | None = None
    final: State | None = None


@runtime_checkable
class WorldModel(Protocol):
    """Predicts the consequences of actions; its state is opaque to everybody else."""

    @property
    def spec(self) -> ModelSpec:
        """What the model was trained on and expects to be given."""
        ...

    def encode(self, obs: Obs, actions: Tensor, valid: Tensor) -> State:
        """Summarises a history.

        Args:
            obs: entries ``[B, C, ...]``, oldest first; shorter histories are right-aligned.
            actions: ``[B, C-1, A]`` model units; action i led from frame i to frame i+1.
            valid: ``[B, C]`` bool, False for frames that do not exist.
        """
        ...

    def predict(self, state: State, actions: Tensor, noise: Noise, steps: Tensor | None = None) -> Rollout:
        """Predicts H steps ahead of `state` under ``actions [B, H, A]``.

        Args:
            state: rows match those of `actions`.
            actions: ``[B, H, A]`` model units; the graph is kept if they require a gradient.
            noise: consumed by stochastic models only.
            steps: ``[S]`` futures wanted; None means ``0..H``.
        """
        ...


class Decoder(Protocol):
    """Turns latents back into observations."""

    def decode(self, latent: Tensor) -> Obs:
        """Decodes ``[B, ...]`` latents into observations of B rows."""
        ...


class Trainable(Protocol):
    """Anything `training.fit` can train."""

    def loss(self, batch: Batch, noise: Noise, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns a scalar loss and detached scalar metrics."""
        ...

    def after_step(self) -> None:
        """Runs after each optimiser step, for target networks."""
        ...


class Proposal(Protocol):
    """Suggests action sequences."""

    def __call__(self, latent: Tensor, n: int, noise: Noise) -> tuple[Tensor, Tensor]:
        """Returns actions ``[B, n, H, A]`` in model units and their log-probability ``[B, n]``."""
        ...


class Value(Protocol):
    """Expected return of a latent."""

    def __call__(self, latent: Tensor) -> Tensor:
        """Maps latents ``[B, ...]`` to ``[B]``."""
        ...


class QValue(Protocol):
    """Expected return of an action in a latent, one estimate per ensemble member."""

    def __call__(self, latent: Tensor, actions: Tensor) -> Tensor:
        """Maps latents ``[B, ...]`` and actions ``[B, H, A]`` to ``[B, E]``."""
        ...


class PolicyValue(Protocol):
    """Prior over choices, with a value."""

    def __call__(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Maps latents ``[B, ...]`` to prior logits ``[B, choices]`` and values ``[B]``."""
        ...


class Feasible(Protocol):
    """Which discrete choices are legal."""

    def __call__(self, state: State) -> Tensor:
        """Returns bool ``[B, choices]``, True where the choice is legal."""
        ...


class InverseModel(Protocol):
    """Recovers the actions between frames."""

    def __call__(self, obs: Obs) -> Tensor:
        """Maps entries ``[B, H+1, ...]`` to actions ``[B, H, A]``."""
        ...


class Success(Protocol):
    """Judges an observation against the goal it carries."""

    def __call__(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Returns success, bool ``[B]``, and progress in [0, 1], float ``[B]``."""
        ...


class Objective(Protocol):
    """Scores predictions; lower is better, always. Implementations are frozen dataclasses."""

    def __call__(self, rollout: Rollout) -> Tensor:
        """Maps a rollout with leading axes ``[B, N, ...]`` to costs ``[B, N]``."""
        ...

    def at(self, obs: Obs) -> Objective:
        """Binds the goals carried by ``obs`` (keys ``goal/...``, rows B)."""
        ...

    def select(self, rows: Tensor) -> Objective:
        """Keeps the bound goals of some rows, given as int64 indices."""
        ...


@dataclass(frozen=True)
class ActionSpec:
    """What an action may be.

    Attributes:
        dim: a, dimensions of one environment action (1 for discrete actions).
        low: ``[a]`` lower bounds, empty for discrete and for unbounded actions.
        high: ``[a]`` upper bounds, empty for discrete and for unbounded actions.
        choices: number of choices of a discrete action, or None for a continuous one.
        unit: what one unit of the action means, in words.
    """

    dim: int
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    choices: int | None = None
    unit: str = ""

    def project(self, actions: Tensor) -> Tensor:
        """Moves ``[..., n*a]`` actions inside the bounds, whose pattern repeats every `dim`."""
        if self.choices is not None:
            return actions.clamp(0, self.choices - 1)
        if not self.low:
            return actions
        repeats, rest = divmod(actions.shape[-1], self.dim)
        assert rest == 0, (actions.shape, self.dim)
        low = actions.new_tensor(self.low).repeat(repeats)
        high = actions.new_tensor(self.high).repeat(repeats)
        return actions.clamp(low, high)


@dataclass(frozen=True)
class Plan:
    """The outcome of a search.

    Attributes:
        actions: ``[B, H, A]`` in model units.
        cost: ``[B]`` predicted cost of `actions`.
        stopped_by: ``"iterations"``, ``"deadline"``, ``"budget"`` or ``"converged"``.
        trace: what plots and warm starts need; tensors with rows B, and plain numbers.
    """

    actions: Tensor
    cost: Tensor
    stopped_by: str = "iterations"
    trace: Mapping[str, Any] = field(default_factory=dict)


class Planner(Protocol):
    """A frozen dataclass of hyper-parameters that searches when called."""

    def __call__(
        self,
        model: WorldModel,
        state: State,
        objective: Objective,
        noise: Noise,
        init: Plan | None = None,
    ) -> Plan:
        """Plans for the B rows of `state` at once; changes nothing but what it returns."""
        ...


@runtime_checkable
class Policy(Protocol):
    """Chooses actions from observations; recurrent state is passed, not kept."""

    def initial(self, batch_size: int) -> Carry:
        """The carry of `batch_size` fresh episodes; tensors in it have that many rows."""
        ...

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """Returns actions ``[B, K, a]`` in environment units, K >= 1, and the next carry."""
        ...


@dataclass(frozen=True)
class Start:
    """Where an episode begins and what it should reach.

    Attributes:
        id: unique within its set.
        seed: seeds the environment and keys every draw of the episode.
        state: ``[state_dim]`` simulator state, or None to let the environment choose.
        goal: ``[state_dim]`` simulator state to reach, or None.
        actions: ``[T, a]`` recorded actions that led from `state` to `goal`, or None.
        meta: displacement and origin, for tables.
    """

    id: str
    seed: int
    state: Array | None = None
    goal: Array | None = None
    actions: Array | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Episode:
    """One recorded episode: T+1 observations and the T actions between them.

    Attributes:
        obs: entries ``[T+1, ...]``; images ``uint8 [T+1, h, w, 3]`` as simulators give them.
        actions: ``[T, a]`` in environment units; ``actions[t]`` turned ``obs[t]`` into ``obs[t+1]``.
        rewards: ``[T]``.
        terminated: the task ended the episode.
        truncated: something else did (time, an operator, an uncertain model).
        meta: ``env``, ``policy``, ``seed``, ``source`` (real or model), ids, ``success``.
    """

    obs: Mapping[str, Array]
    actions: Array
    rewards: Array
    terminated: bool
    truncated: bool
    meta: Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """Windows cut from episodes, ready for a loss.

    Attributes:
        obs: entries ``[B, T+1, ...]``, one per model step; images ``uint8 [B, T+1, 3, h, w]``.
        actions: ``[B, T, A]`` environment units, k environment actions side by side.
        mask: ``[B, T]`` bool, False where a step is padding.
    """

    obs: Obs
    actions: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Estimate:
    """A number with its uncertainty; a bare mean is never reported.

    Attributes:
        value: the point estimate, or None when it is undefined.
        low: lower end of the interval, or None.
        high: upper end of the interval, or None.
        n: independent units behind it.
        method: how the interval was made, e.g. ``"wilson 95%"``.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    method: str


@dataclass(frozen=True)
class EvalRecord:
    """One evaluated episode; one line of ``records.jsonl``."""

    task: str
    policy: str
    seed: int
    start: str
    source: Source
    ret: float
    success: bool | None
    length: int
    seconds: float
    model: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
