"""Evaluate a policy that is nothing but a function, beside random actions, on the same starts.

    python examples/own_policy.py [--starts 60]

The command line takes it too: cd examples && worldplan eval policy=own_policy:straight env=tworoom
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import torch

import worldplan as wp
from worldplan.data import evalset
from worldplan.evaluation.estimates import rate
from worldplan.policies.callable import CallablePolicy
from worldplan.policies.random import RandomPolicy


def straight(obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Walks straight at the goal, walls or not: states ``[B, 2]`` in px to actions ``[B, 2]``."""
    return ((obs["goal/state"] - obs["state"]) / 5).clamp(-1, 1)  # one unit of action is 5 px


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=60)
    options = parser.parse_args(argv)

    task, pairs = wp.task("tworoom"), evalset.load("tworoom-25")
    starts = evalset.starts(pairs, limit=options.starts)
    env = wp.SimVectorEnv(task, num_envs=min(20, options.starts), pixels=False)
    # the wrapper checks shapes and numbers, and says what was wrong with them
    for policy in (CallablePolicy(straight, task.action), RandomPolicy(task.action)):
        episodes = list(wp.collect(env, policy, starts, max_steps=pairs.budget))
        success = rate(episode.meta["success"] for episode in episodes)
        steps = sum(episode.meta["length"] for episode in episodes) / len(episodes)
        interval = f"[{success.low:.2f}, {success.high:.2f}]"
        print(f"{policy.name}: success {success.value:.2f} {interval}, n = {success.n}, {steps:.0f} steps")
    env.close()


if __name__ == "__main__":
    main()
