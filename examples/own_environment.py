"""Plan in an environment of your own: Gymnasium's pendulum, swung up by CEM through its equations.

A trained model may replace `SimulatorModel`. Run: python examples/own_environment.py [--steps 200]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

import worldplan as wp
from worldplan.envs.simulator_model import SimulatorModel
from worldplan.planners.objectives import StateGoal
from worldplan.policies.random import RandomPolicy


def pendulum(**_: Any) -> gymnasium.Env[Any, Any]:
    """Observes ``state``, angle and speed, and ``goal/state``: upright and at rest."""
    box = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    space = gymnasium.spaces.Dict({"state": box, "goal/state": box})
    return gymnasium.wrappers.TransformObservation(gymnasium.make("Pendulum-v1"), observe, space)


def observe(seen: Any) -> dict[str, Any]:
    state = np.array([np.arctan2(seen[1], seen[0]), seen[2]], np.float32)
    return {"state": state, "goal/state": np.zeros(2, np.float32)}


def advance(states: Any, actions: Any) -> Any:
    """One step of many pendulums: states ``[M, 2]``, torques ``[M, 1]``, as Gymnasium computes it."""
    speed = (states[:, 1] + (15 * np.sin(states[:, 0]) + 3 * actions[:, 0]) * 0.05).clip(-8, 8)
    return np.stack((states[:, 0] + speed * 0.05, speed), 1)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200, help="per episode, 0.05 s each")
    options = parser.parse_args(argv)
    task = replace(wp.task("gym:Pendulum-v1"), name="pendulum", state_names=("angle", "speed"), frame_skip=2)
    task = replace(task, factory=pendulum, advance=advance)
    planner = wp.CEM(horizon=20, num_samples=200, num_iterations=5, num_elites=20)
    # squared distance from upright at the best moment of a predicted path
    goal = StateGoal(read=lambda latent: latent, weights=(1.0, 0.1), angles=(0,), path="min")
    cem = wp.PlanningPolicy(SimulatorModel(task), planner, goal, execute=1, name="cem")
    env = wp.SimVectorEnv(task, num_envs=2)
    starts = [wp.Start(id=f"pendulum-{i}", seed=i) for i in range(2)]
    for policy in (cem, RandomPolicy(task.action)):
        for episode in wp.collect(env, policy, starts, max_steps=options.steps):
            angle = abs(np.degrees(episode.obs["state"][-1, 0]))
            print(f"{policy.name}: return {episode.rewards.sum():.0f}, {angle:.0f} degrees from upright")
    env.close()


if __name__ == "__main__":
    main()
