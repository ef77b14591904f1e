"""``worldplan validate``: compare a world model's imagination with recorded episodes."""

from __future__ import annotations

from typing import Any

from worldplan.cli import measure, resolve
from worldplan.cli.job import Job
from worldplan.errors import DataError
from worldplan.protocol import require_match

LEFTOVERS = ()


def run(job: Job) -> tuple[dict[str, Any], int]:
    """Replays recorded actions in imagination; exit code 3 where copying the first frame does better."""
    from worldplan.data import native
    from worldplan.envs.imagined import ImaginedVectorEnv
    from worldplan.evaluation import result, validity
    from worldplan.loop import collect
    from worldplan.policies.replay import ReplayPolicy
    from worldplan.seeding import derive
    from worldplan.types import Start

    c = job.config
    resolve.threads(c)
    model = resolve.world_model(str(c["model"]))
    task = resolve.task(model.spec.env)
    resolve.require_task(model, task, str(c["model"]))
    dataset = native.open(str(c["data"]))
    require_fit(dataset, task)
    steps = int(c["steps"])
    long = [i for i in range(len(dataset)) if dataset.lengths[i] > steps][: int(c["episodes"])]
    if not long:
        longest = int(dataset.lengths.max()) - 1
        raise DataError(
            f"no episode of {dataset.path} is long enough",
            expected=f"{steps} steps",
            found=f"{longest} in the longest of {len(dataset)} episodes",
            fix=f"steps={longest}",
        )
    starts = []
    for i in long:
        episode = dataset.episode(i)
        state = episode.obs["state"][: steps + 1]
        native.require_finite(state, "state", dataset.path, i)
        starts.append(
            Start(
                f"validate/{i:06d}",
                derive(int(c["seed"]), "validate", i),
                state[0],
                state[steps],
                episode.actions[:steps],
            )
        )
    policy = ReplayPolicy(starts, chunk=task.frame_skip)
    settings = {"num_envs": 25, "workers": 0}
    with measure.simulator(task, settings, measure.image_size(model), len(starts)) as env:
        real = list(collect(env, policy, starts, max_steps=steps, policy_name="replay"))
        imagined = ImaginedVectorEnv(
            model, model.decode, None, env, max_steps=steps, model_id=resolve.model_name(str(c["model"]))
        )
        dreamt = collect(imagined, policy, starts, max_steps=steps, policy_name="replay")
        units = {"block_px": "px", "agent_px": "px", "block_rad": "rad"}
        checked = validity.validate(
            real, dreamt, errors=task.displacement, units=units, every=task.frame_skip
        )
    found = result.build(
        task=task.name, model=resolve.model_name(str(c["model"])), validity=checked, command=job.command,
        protocol={"steps": steps, "episodes": len(starts)},
    )  # fmt: skip
    for name, estimate in checked.estimates.items():
        job.say(f"{name:<16} {estimate.value} [{estimate.low}, {estimate.high}] n={estimate.n}")
    gain = checked.estimates.get("psnr_gain")
    return found, 3 if gain is not None and gain.value is not None and gain.value <= 0 else 0


def require_fit(dataset: Any, task: Any) -> None:
    """Refuses episodes that cannot be replayed in the task: of another environment, or of other sizes.

    Raises:
        DataError: actions or states are missing, or of another size.
        ProtocolMismatch: they come from another environment.
    """
    recorded = dataset.attrs.get("env")
    if recorded is not None:
        require_match(
            {"env": task.name},
            {"env": str(recorded)},
            f"the model and {dataset.path}",
            fix=f"episodes of {task.name}, or a model trained on {recorded}",
        )
    for key, size in (("action", task.action.dim), ("state", len(task.state_names))):
        column = dataset.column(key)
        if tuple(column.shape) != (size,):
            raise DataError(
                f"{dataset.path}: {key!r} does not fit {task.name}",
                expected=f"{size} numbers per row",
                found=str(list(column.shape)),
                fix=f"episodes of {task.name}",
            )
