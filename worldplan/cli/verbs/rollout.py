"""``worldplan rollout``: write imagined episodes of a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from worldplan.cli import measure, resolve
from worldplan.cli.job import Job

OUT_IS_FILE = True


def run(job: Job) -> tuple[dict[str, Any], int]:
    """Imagines episodes and writes them with their origin: ``source`` model, and the model's name."""
    from worldplan.data import native
    from worldplan.data.atomic import require_writable
    from worldplan.envs.imagined import ImaginedVectorEnv
    from worldplan.loop import collect

    c = job.config
    require_writable(Path(str(c["out"])), bool(c["overwrite"]))
    resolve.threads(c)
    model = resolve.world_model(str(c["model"]))
    task = resolve.task(c["env"] or model.spec.env)
    resolve.require_task(model, task, str(c["model"]))
    starts, _ = resolve.start_set(c["starts"], task.name, int(c["episodes"]))
    policy, _ = resolve.policy(str(c["policy"]), task, starts)
    name = resolve.model_name(str(c["model"]))
    with (
        measure.simulator(task, c, measure.image_size(model), len(starts)) as env,
        job.progress("imagining") as update,
    ):
        judge = resolve.reader(c["reader"], task)
        imagined = ImaginedVectorEnv(
            model, model.decode, judge, env, max_steps=int(c["steps"]), model_id=name, seed=int(c["seed"])
        )
        episodes = collect(
            imagined, policy, starts, max_steps=int(c["steps"]), seed=int(c["seed"]), progress=update,
            policy_name=str(c["policy"]), keep_obs=["pixels", "state"],
        )  # fmt: skip
        dataset = native.write(
            str(c["out"]), episodes, attrs={"command": job.command}, overwrite=bool(c["overwrite"])
        )
    job.say(f"{len(dataset)} imagined episodes written to {dataset.path}")
    return {
        "path": str(dataset.path),
        "episodes": len(dataset),
        "rows": int(dataset.num_rows),
        "model": name,
    }, 0
