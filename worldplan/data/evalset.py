"""Evaluation sets: fixed pairs of start and goal from held-out episodes, as small files.

The LeWM protocol: the goal is the state `goal_offset` environment steps after the start in the same
recorded episode, so it can be reached; a policy has `budget` steps. Pairs are balanced over
episodes, and pairs solved at the start are left out and counted.
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from worldplan.data.atomic import replacing
from worldplan.data.native import Dataset, require_finite
from worldplan.errors import DataError, suggest
from worldplan.seeding import derive
from worldplan.types import Array, Start

VERSION = 1


class TaskFunctions(Protocol):
    """What a set needs to know of its task; states and goals are ``[M, s]``."""

    @property
    def name(self) -> str:
        """Name of the task."""
        ...

    def success(self, states: Array, goals: Array) -> Array:
        """Bool ``[M]``."""
        ...

    def displacement(self, states: Array, goals: Array) -> dict[str, Array]:
        """What the goals ask for, ``[M]`` each."""
        ...


@dataclass(frozen=True)
class EvalSet:
    """M pairs of start and goal.

    Attributes:
        name: of the set; pair ids start with it.
        task: name of the task.
        goal_offset: G, environment steps between start and goal in the recording.
        budget: environment steps an episode may take.
        seed: of the draw.
        states: float64 ``[M, s]`` starts.
        goals: float64 ``[M, s]``.
        actions: float32 ``[M, G, a]``, recorded, leading from start to goal.
        episode: int64 ``[M]``, where the pair comes from.
        step: int64 ``[M]``, row of the start within that episode.
        displacement: ``[M]`` each, what the goal asks for.
        solved: pairs drawn that were solved at the start, and left out.
        about: where the data came from.
    """

    name: str
    task: str
    goal_offset: int
    budget: int
    seed: int
    states: Array
    goals: Array
    actions: Array
    episode: Array
    step: Array
    displacement: Mapping[str, Array] = field(default_factory=dict)
    solved: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """M, the number of pairs."""
        return len(self.states)

    def __repr__(self) -> str:
        """Name, size and protocol on one line."""
        origin = f"{len(self)} pairs of {self.task} from {len(np.unique(self.episode))} episodes"
        protocol = f"goals {self.goal_offset} steps ahead, budget {self.budget}"
        return f"EvalSet({self.name!r}: {origin}, {protocol}, {self.solved} solved left out)"


_ARRAYS = ("states", "goals", "actions", "episode", "step")
_HEADER = tuple(f.name for f in fields(EvalSet) if f.name not in (*_ARRAYS, "displacement"))


def build(
    dataset: Dataset,
    episodes: Iterable[int],
    task: TaskFunctions,
    *,
    name: str,
    num_pairs: int,
    goal_offset: int = 25,
    budget: int = 50,
    seed: int = 0,
    state_key: str = "state",
) -> EvalSet:
    """Draws pairs from held-out episodes, one episode after the other in shuffled rounds.

    Args:
        dataset: the recording.
        episodes: held-out episode numbers.
        task: says which pairs are solved at the start, and what the others ask for.
        name: of the set.
        num_pairs: M.
        goal_offset: G, environment steps from start to goal.
        budget: environment steps an episode may take.
        seed: of the draw; a start's place depends on (seed, episode, round) alone.
        state_key: column with the simulator state.

    Raises:
        DataError: the episodes hold fewer pairs than asked for, or a recorded action is NaN.
    """
    if num_pairs < 1 or goal_offset < 1:
        raise DataError("no pairs asked for", found=f"num_pairs={num_pairs}, goal_offset={goal_offset}")
    chosen = np.asarray(list(episodes), np.int64)
    recorded = dataset.array(state_key).reshape(dataset.num_rows, -1).astype(np.float64)
    kept, solved = _draw(dataset, chosen, task, num_pairs, goal_offset, seed, recorded)
    episode, step = np.asarray(kept, np.int64).T
    rows = dataset.offsets[episode] + step
    states, goals = recorded[rows], recorded[rows + goal_offset]
    actions = dataset.array("action", rows[:, None] + np.arange(goal_offset)).astype(np.float32)
    for number, taken in enumerate(actions):
        require_finite(taken, "action", dataset.path, int(episode[number]), int(step[number]))
    about = {"file": dataset.path.name, **{k: v for k, v in dataset.attrs.items() if k != "format"}}
    asked = {key: np.asarray(value) for key, value in task.displacement(states, goals).items()}
    return EvalSet(
        name, task.name, goal_offset, budget, seed, states, goals, actions, episode, step, asked, solved,
        {**about, "state_key": state_key, "held_out_episodes": len(chosen)},
    )  # fmt: skip


def starts(evalset: EvalSet, limit: int | None = None) -> list[Start]:
    """The pairs as starts, in order; each has a seed of its own."""
    count = len(evalset) if limit is None else min(limit, len(evalset))
    return [
        Start(
            id=f"{evalset.name}/{number:04d}",
            seed=derive(evalset.seed, "evalset", evalset.name, number),
            state=evalset.states[number],
            goal=evalset.goals[number],
            actions=evalset.actions[number],
            meta={
                "set": evalset.name,
                "episode": int(evalset.episode[number]),
                "step": int(evalset.step[number]),
                **{key: float(values[number]) for key, values in evalset.displacement.items()},
            },
        )
        for number in range(count)
    ]


def write(path: str | os.PathLike[str], evalset: EvalSet, *, overwrite: bool = False) -> None:
    """Writes a set as ``.npz``: arrays and a JSON header, nothing pickled; equal sets, equal bytes."""
    header = {"version": VERSION, **{key: getattr(evalset, key) for key in _HEADER}}
    arrays = {key: getattr(evalset, key) for key in _ARRAYS}
    arrays |= {f"displacement/{key}": values for key, values in evalset.displacement.items()}
    with replacing(Path(os.path.abspath(path)), overwrite) as draft, builtins.open(draft, "wb") as file:
        np.savez_compressed(file, header=np.array(json.dumps(header, sort_keys=True)), **arrays)


def read(path: str | os.PathLike[str]) -> EvalSet:
    """Reads a set.

    Raises:
        DataError: the file does not exist or is no evaluation set.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
        header = json.loads(str(arrays.pop("header")))
        version = header.pop("version")
        found = EvalSet(
            **header,
            **{key: arrays[key] for key in _ARRAYS},
            displacement={k[13:]: value for k, value in arrays.items() if k.startswith("displacement/")},
        )
    except FileNotFoundError:
        raise DataError(f"no such file: {path}", expected="an evaluation set (.npz)") from None
    except Exception as error:
        raise DataError(
            f"{path} is no evaluation set",
            expected="an .npz file with a JSON header, as worldplan.data.evalset.write makes it",
            found=f"{type(error).__name__}: {error}",
        ) from error
    if version != VERSION:
        raise DataError(f"{path} has another version", expected=str(VERSION), found=str(version))
    return found


def packaged() -> dict[str, Path]:
    """Evaluation sets that came with the library: name -> file."""
    package = Path(__file__).resolve().parents[1]
    # a source checkout keeps them at its root, a wheel inside the package
    shelves = (package.parent / "assets" / "evalsets", package / "_assets" / "evalsets")
    return {path.stem: path for shelf in shelves for path in sorted(shelf.glob("*.npz"))}


def load(source: str | os.PathLike[str]) -> EvalSet:
    """A packaged set by name, or one from a file.

    Raises:
        DataError: there is neither, or the file is no evaluation set.
    """
    known = packaged()
    name = os.fspath(source)
    if name not in known and not os.path.exists(name):
        raise DataError(
            f"no evaluation set {name!r}",
            expected="a packaged name or an .npz file",
            fix=suggest(name, known),
        )
    return read(known.get(name, Path(name)))


def _draw(
    dataset: Dataset,
    episodes: Array,
    task: TaskFunctions,
    num_pairs: int,
    offset: int,
    seed: int,
    states: Array,
) -> tuple[list[tuple[int, int]], int]:
    """Episode and step of each pair, and how many more were solved at the start."""
    room = {int(i): int(dataset.lengths[i]) - offset for i in episodes}
    usable = sorted(i for i, places in room.items() if places > 0)
    # every possible start of an episode, in the order in which the rounds take them
    orders = {
        i: np.random.default_rng(derive(seed, "evalset", i)).permutation(room[i]).tolist() for i in usable
    }
    kept: list[tuple[int, int]] = []
    solved = 0
    for turn in range(max(room.values(), default=0)):
        present = [i for i in usable if turn < room[i]]
        for i in sorted(present, key=lambda i: derive(seed, "evalset", "turn", turn, i)):  # noqa: B023
            row = int(dataset.offsets[i]) + orders[i][turn]
            if bool(task.success(states[row][None], states[row + offset][None])[0]):
                solved += 1
                continue
            kept.append((i, orders[i][turn]))
            if len(kept) == num_pairs:
                return kept, solved
    longest = int(dataset.lengths[episodes].max()) if len(episodes) else 0
    raise DataError(
        f"{dataset.path}: not enough pairs of start and goal",
        expected=f"{num_pairs} pairs, {offset} steps apart and not solved at the start",
        found=f"{len(kept)} in {len(usable)} of {len(episodes)} episodes (longest: {longest} observations); "
        f"{solved} more are solved at the start",
        fix="more held-out episodes, fewer pairs, or a smaller goal_offset",
    )
