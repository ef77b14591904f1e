"""Plan in Push-T with the shipped world model, in closed loop, and look at it.

    python examples/plan_pusht.py [--episodes 4] [--samples 128] [--iterations 8] [--out runs/plan.gif]

The published setting is 300 samples and 30 iterations; fewer are quicker and reach less.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import worldplan as wp
from worldplan.data import evalset
from worldplan.evaluation import videos
from worldplan.evaluation.estimates import rate


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("runs/plan.gif"))
    options = parser.parse_args(argv)

    model: Any = wp.load("pusht-lewm-small")
    elites = max(2, options.samples // 10)
    planner = wp.CEM(num_samples=options.samples, num_iterations=options.iterations, num_elites=elites)
    # cost of a plan: how far from the goal's latent it is predicted to end
    policy = wp.PlanningPolicy(model, planner, wp.LatentGoal(model.embed), name="cem")

    # pairs of start and goal from episodes that the model was not trained on
    pairs = evalset.load("pusht-25")
    starts = evalset.starts(pairs, limit=options.episodes)
    env = wp.SimVectorEnv("pusht", num_envs=min(4, options.episodes))
    episodes = []
    for episode in wp.collect(env, policy, starts, max_steps=pairs.budget):
        verdict = "reached" if episode.meta["success"] else "missed"
        print(f"{episode.meta['start']}: {verdict} after {episode.meta['length']} steps")
        episodes.append(episode)
    env.close()

    success = rate(episode.meta["success"] for episode in episodes)
    print(f"success {success.value:.2f} [{success.low:.2f}, {success.high:.2f}], n = {success.n}")

    shown = next((each for each in episodes if each.meta["success"]), episodes[0])
    panels = [("simulator", shown.obs["pixels"]), ("goal", shown.obs["goal/pixels"])]
    print("video:", videos.write(options.out, videos.side_by_side(panels)))


if __name__ == "__main__":
    main()
