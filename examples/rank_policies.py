"""Rank policies inside the world model, and see whether the simulator agrees.

    python examples/rank_policies.py [--starts 16]

Few starts, wide intervals.
"""

from __future__ import annotations

import argparse
from typing import Any

import worldplan as wp
from worldplan.data import evalset
from worldplan.evaluation.records import records_from_episodes
from worldplan.policies.random import RandomPolicy
from worldplan.policies.replay import ReplayPolicy


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=16)
    options = parser.parse_args(argv)
    task, pairs = wp.task("pusht"), evalset.load("pusht-25")
    starts = evalset.starts(pairs, limit=options.starts)
    policies: dict[str, Any] = {
        "replay": ReplayPolicy(starts, chunk=task.frame_skip),
        "behaviour cloning": wp.load("pusht-gcbc"),
        "random": RandomPolicy(task.action, chunk=task.frame_skip),
    }
    model: Any = wp.load("pusht-lewm-small")
    # success in imagination is read off imagined frames, by a judge that was trained apart
    reader: Any = wp.load("pusht-reader")
    judge = reader.judge(task.success, task.progress)
    simulator = wp.SimVectorEnv(task, num_envs=min(8, options.starts))
    imagination = wp.ImaginedVectorEnv(model, model.decode, judge, simulator, model_id="pusht-lewm-small")

    records: list[wp.EvalRecord] = []
    for name, policy in policies.items():
        for world in (imagination, simulator):  # the same loop, starts and seeds in both
            played = wp.collect(world, policy, starts, max_steps=pairs.budget, policy_name=name)
            records += records_from_episodes(played, task, starts=starts)
    simulator.close()
    ranking = wp.rank(records)
    for row in ranking.rows:
        print(f"{row.imagined_rank}. {row.policy}: imagined {told(row.imagined)}, simulator {told(row.real)}")
    print("Kendall's tau between the two orders:", told(ranking.agreement.get("kendall")))


def told(estimate: wp.Estimate | None) -> str:
    """An estimate with its interval; either may be undefined."""
    if estimate is None or estimate.value is None:
        return "unknown"
    ends = "" if estimate.low is None else f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{estimate.value:.2f}{ends}"


if __name__ == "__main__":
    main()
