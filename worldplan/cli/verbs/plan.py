"""``worldplan plan``: plan with a world model in closed loop, beside the baselines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from worldplan.cli import measure, pictures, resolve
from worldplan.cli.job import Job

TRUE = "@true-dynamics"


def run(job: Job) -> tuple[dict[str, Any], int]:
    """Plans from the starts of the evaluation set; writes records, a result, a report and videos."""
    from worldplan.evaluation import records as room
    from worldplan.evaluation import result

    c = job.config
    resolve.threads(c)
    model = resolve.world_model(str(c["model"]))
    task = resolve.task(c["env"] or model.spec.env)
    require_env(model, task)
    starts, facts = resolve.start_set(c["starts"], task.name, int(c["episodes"]))
    name = resolve.model_name(str(c["model"]))
    searches = resolve.planner(c["planner"])
    label = f"{resolve.planner_name(searches)}@{name}"
    policy = resolve.planning_policy(
        model, searches, task, execute=c["execute"], history=int(c["history"]),
        kind=str(c["objective"]), name=label,
    )  # fmt: skip
    rows: list[measure.Measured] = []
    with measure.simulator(task, c, measure.image_size(model), len(starts)) as env:
        keep = min(int(c["videos"] or 0), len(starts))
        main = measure.evaluate(
            job,
            env,
            policy,
            label,
            starts,
            task,
            facts["budget"],
            c["seed"],
            meta={"plans_with": name},
            keep=keep,
        )
        for text in [*c["baselines"], *([c["no_planning"]] if c["no_planning"] else [])]:
            other, meta = resolve.policy(str(text), task, starts)
            rows.append(
                measure.evaluate(
                    job, env, other, str(text), starts, task, facts["budget"], c["seed"], meta=meta
                )
            )
        if c["true_dynamics"]:
            rows.append(true_dynamics(job, env, task, starts[: int(c["true_dynamics"])], facts, c, searches))
    records = [record for each in (main, *rows) for record in each.records]
    room.write(job.path("records.jsonl"), records)
    names = {str(c["no_planning"]): "no_planning"}
    found = result.build(
        task=task.name, policy=label, model=name, success=main.success, demanding=main.demanding,
        baselines={
            "true_dynamics" if row.policy.endswith(TRUE) else names.get(row.policy, row.policy): row.success
            for row in rows
        },
        seconds_per_decision=main.decisions, command=job.command,
        protocol=measure.protocol(
            task, facts, planner=dict(c["planner"]), execute=c["execute"], history=c["history"],
            objective=c["objective"],
        ),
    )  # fmt: skip
    clips = pictures.plan_clips(main.episodes, model)
    measure.publish(job, records, found, f"{label} on {task.name}", None, clips)
    job.say(measure.table([main, *rows]))
    return found, 0


def require_env(model: Any, task: Any) -> None:
    """Refuses an environment the model was not trained on."""
    from worldplan.protocol import require_match

    require_match(
        {"env": model.spec.env, "frame_skip": model.spec.frame_skip, "action_dim": model.spec.action.dim},
        {"env": task.name, "frame_skip": task.frame_skip, "action_dim": task.action.dim},
        "the checkpoint and the environment",
        fix=f"env={model.spec.env}",
    )


def true_dynamics(
    job: Job, env: Any, task: Any, starts: Any, facts: dict[str, Any], config: dict[str, Any], like: Any
) -> measure.Measured:
    """CEM with the simulator itself as the model, re-planned as `like` is: what a perfect model reaches."""
    from worldplan.envs.simulator_model import SimulatorModel
    from worldplan.planners.cem import CEM
    from worldplan.planners.shrinking import ShrinkingHorizon
    from worldplan.policies.planning import PlanningPolicy

    searches = CEM(num_samples=100, num_iterations=10, num_elites=10, init_std=0.25)
    planner = replace(like, planner=searches) if isinstance(like, ShrinkingHorizon) else searches
    name = f"{resolve.planner_name(planner)}{TRUE}"
    model = SimulatorModel(task, workers=int(config["workers"]))
    try:
        policy = PlanningPolicy(model, planner, resolve.state_goal(task), name=name)
        return measure.evaluate(job, env, policy, name, starts, task, facts["budget"], config["seed"])
    finally:
        model.close()
