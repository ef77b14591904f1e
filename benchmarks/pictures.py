"""Draws the two pictures of the README from the shipped model: closed-loop episodes, and a ranking.

python -m benchmarks.pictures plan             # assets/readme/plan.gif
python -m benchmarks.pictures ranking RUN      # assets/readme/ranking.png, of a finished `worldplan rank`
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import worldplan as wp
from worldplan.cli import pictures
from worldplan.data import evalset
from worldplan.evaluation import figures, result, videos

FOLDER = Path(__file__).resolve().parents[1] / "assets" / "readme"
TRIED, SHOWN, ITERATIONS = 6, 2, 15


def plan() -> None:
    """The first starts that ask for a large move and a large turn, planned by the shipped model."""
    model: Any = wp.load("pusht-lewm-small")
    policy = wp.PlanningPolicy(
        model, wp.CEM(num_iterations=ITERATIONS), wp.LatentGoal(model.embed), name="cem"
    )
    pairs = evalset.load("pusht-25")
    asked = pairs.displacement
    chosen = np.flatnonzero((asked["block_px"] > 60) & (asked["block_rad"] > 0.5))[:TRIED]
    starts = [evalset.starts(pairs)[int(index)] for index in chosen]
    env = wp.SimVectorEnv("pusht", num_envs=TRIED)
    episodes = list(wp.collect(env, policy, starts, max_steps=pairs.budget))
    env.close()
    reached = [episode for episode in episodes if episode.meta["success"]]
    print(f"{len(reached)} of {len(episodes)} reached; the first {SHOWN} of those are drawn")
    rows = []
    for episode in reached[:SHOWN]:
        real = np.asarray(episode.obs["pixels"])
        predicted = pictures.imagine(model, real[0], episode.actions)
        goal = pictures.goal_frames(episode, len(real))
        panels = [("simulator", real), ("predicted", predicted), ("goal", goal)]
        rows.append(videos.side_by_side(panels, height=128))
    length = max(len(row) for row in rows)
    frames = np.concatenate([pictures.held(row, length) for row in rows], 1)
    videos.write(FOLDER / "plan.gif", np.concatenate((frames, np.repeat(frames[-1:], 8, 0))))


def ranking(run: Path) -> None:
    """Success in imagination against success in the simulator, numbered as the table of the run."""
    rows = result.read(run / "result.json")["ranking"]
    points = [
        figures.Point(str(number), wp.Estimate(**row["real"]), wp.Estimate(**row["imagined"]))
        for number, row in enumerate(rows, 1)
    ]
    (FOLDER / "ranking.png").write_bytes(figures.scatter(points, real_name="the simulator", form="png"))


def main(argv: Sequence[str] | None = None) -> None:
    """Draws one of the two."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="picture", required=True)
    verbs.add_parser("plan")
    verbs.add_parser("ranking").add_argument("run", type=Path)
    options = parser.parse_args(argv)
    plan() if options.picture == "plan" else ranking(options.run)


if __name__ == "__main__":
    main()
