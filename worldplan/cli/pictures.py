"""Videos for reports: what happened, what was predicted, what was wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from worldplan.types import Episode


def plan_clips(episodes: Sequence[Episode], model: Any) -> list[Any]:
    """Closed-loop episodes beside the model's prediction of the executed actions, and the goal."""
    from worldplan.evaluation import videos

    clips = []
    for episode in episodes:
        real = np.asarray(episode.obs["pixels"])
        predicted = imagine(model, real[0], episode.actions)
        frames = videos.side_by_side(
            [("simulator", real), ("predicted", predicted), ("goal", goal_frames(episode, len(real)))]
        )
        verdict = "reached" if episode.meta.get("success") else "missed"
        clips.append(videos.clip(f"{episode.meta['start']}: {verdict}", frames))
    return clips


def rank_clips(real: Sequence[Episode], imagined: Sequence[Episode]) -> list[Any]:
    """The same policy from the same start, in the simulator and in imagination."""
    from worldplan.evaluation import videos

    dreamt = {(e.meta["policy"], e.meta["start"]): e for e in imagined}
    clips = []
    for episode in real:
        other = dreamt.get((episode.meta["policy"], episode.meta["start"]))
        if other is None:
            continue
        one, two = np.asarray(episode.obs["pixels"]), np.asarray(other.obs["pixels"])
        length = max(len(one), len(two))
        frames = videos.side_by_side(
            [
                ("simulator", held(one, length)),
                ("imagined", held(two, length)),
                ("goal", goal_frames(episode, length)),
            ]
        )
        verdicts = [
            {True: "reached", False: "missed", None: "unknown"}[e.meta.get("success")]
            for e in (episode, other)
        ]
        title = f"{episode.meta['policy']}, {episode.meta['start']}"
        clips.append(videos.clip(title, frames, note=f"simulator: {verdicts[0]}; imagined: {verdicts[1]}"))
    return clips


def imagine(model: Any, first: Any, actions: Any) -> Any:
    """Frames ``uint8 [T+1, h, w, 3]`` a model expects under environment actions ``[T, a]``."""
    import torch

    from worldplan.seeding import Noise

    k = model.spec.frame_skip
    blocks = -(-len(actions) // k)
    padded = np.zeros((blocks * k, actions.shape[1]), np.float32)
    padded[: len(actions)] = actions
    frame = torch.from_numpy(np.ascontiguousarray(first)).permute(2, 0, 1)[None, None]
    context = model.spec.context
    obs = {"pixels": frame.expand(-1, context, -1, -1, -1)}
    valid = torch.zeros(1, context, dtype=torch.bool)
    valid[:, -1] = True
    with torch.no_grad():
        state = model.encode(obs, torch.zeros(1, context - 1, model.spec.action_dim), valid)
        flat = torch.from_numpy(padded).reshape(1, blocks, -1)
        rollout = model.predict(state, model.normalizer.normalize(flat), Noise.of(0, 1))
        frames = model.decode(rollout.latent[0])["pixels"].permute(0, 2, 3, 1).numpy()
    steps = np.minimum((np.arange(len(actions) + 1) + k - 1) // k, blocks)
    return frames[steps]


def goal_frames(episode: Episode, length: int) -> Any:
    """The goal frame, repeated."""
    goal = np.asarray(episode.obs["goal/pixels"])
    goal = goal[0] if goal.ndim == 4 else goal
    return np.repeat(goal[None], length, 0)


def held(frames: Any, length: int) -> Any:
    """Frames, the last one held until `length`."""
    return np.concatenate((frames, np.repeat(frames[-1:], length - len(frames), 0)))
