"""``worldplan collect``: run a policy in an environment and write its episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from worldplan.cli import resolve
from worldplan.cli.job import Job
from worldplan.seeding import derive
from worldplan.types import Start

OUT_IS_FILE = True


def starts(seed: int, episodes: int) -> list[Start]:
    """Fresh starts: the environment draws states and goals from each one's seed."""
    return [Start(id=f"collect/{i:06d}", seed=derive(seed, "collect", i) % 2**31) for i in range(episodes)]


def run(job: Job) -> tuple[dict[str, Any], int]:
    """Collects, writes, and says what was written."""
    from dataclasses import asdict

    from worldplan.data import native
    from worldplan.data.atomic import require_writable
    from worldplan.envs.vector import SimVectorEnv
    from worldplan.loop import collect

    c = job.config
    require_writable(Path(str(c["out"])), bool(c["overwrite"]))
    resolve.threads({"threads": 1})
    task = resolve.task(c["env"])
    begins = starts(int(c["seed"]), int(c["episodes"]))
    policy, _ = resolve.policy(str(c["policy"]), task, begins)
    rows = min(int(c["num_envs"]), len(begins))
    keep = [key for key in ("pixels", "state") if key != "pixels" or c["pixels"]]
    attrs = {"action": asdict(task.action), "seed": int(c["seed"]), "command": job.command}
    with job.progress("collecting", len(begins)) as update:
        env = SimVectorEnv(
            task, rows, workers=int(c["workers"]), image_size=int(c["image_size"]), pixels=bool(c["pixels"])
        )
        try:
            episodes = collect(
                env, policy, begins, max_steps=int(c["steps"]), seed=int(c["seed"]), keep_obs=keep,
                progress=update, policy_name=str(c["policy"]),
            )  # fmt: skip
            dataset = native.write(str(c["out"]), episodes, attrs=attrs, overwrite=bool(c["overwrite"]))
        finally:
            env.close()
    job.say(f"{len(dataset)} episodes, {dataset.num_rows} rows written to {dataset.path}")
    return {"path": str(dataset.path), "episodes": len(dataset), "rows": int(dataset.num_rows)}, 0
