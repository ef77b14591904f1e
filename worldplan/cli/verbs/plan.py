"""``worldplan plan``: plan with a world model in closed loop, beside the baselines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from worldplan.cli import measure, pictures, resolve
from worldplan.cli.job import Job


def run(job: Job) -> tuple[dict[str, Any], int]:
    """Plans from the starts of the evaluation set; writes records, a result, a report and videos."""
    from worldplan.evaluation import records as room
    from worldplan.evaluation import result

    c = job.config
    resolve.threads(c)
    model = resolve.world_model(str(c["model"]))
    task = resolve.task(c["env"] or model.spec.env)
    resolve.require_task(model, task, str(c["model"]))
    starts, facts = resolve.start_set(c["starts"], task.name, int(c["episodes"]))
    name = resolve.model_name(str(c["model"]))
    searches = resolve.planner(c["planner"])
    label = f"{resolve.planner_name(searches)}@{name}"
    policy = resolve.planning_policy(
        model, searches, task, execute=c["execute"], history=int(c["history"]),
        kind=str(c["objective"]), consistency=float(c["consistency"]), name=label,
    )  # fmt: skip
    keep = measure.filmed(c, starts)
    others: dict[str, measure.Measured] = {}  # by the name a result has for them
    with measure.simulator(task, c, measure.image_size(model), len(starts)) as env:
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
        asked = {str(text): str(text) for text in c["baselines"]}
        if c["no_planning"]:
            asked["no_planning"] = str(c["no_planning"])
        for key, text in asked.items():
            other, meta = resolve.policy(text, task, starts)
            others[key] = measure.evaluate(
                job, env, other, text, starts, task, facts["budget"], c["seed"], meta=meta
            )
        if c["true_dynamics"]:
            first = starts[: int(c["true_dynamics"])]
            others["true_dynamics"] = true_dynamics(job, env, task, first, facts, c, searches)
    rows = [main, *others.values()]
    records = [record for each in rows for record in each.records]
    room.write(job.path("records.jsonl"), records)
    found = result.build(
        task=task.name, policy=label, model=name, success=main.success, demanding=main.demanding,
        baselines={key: each.success for key, each in others.items()},
        seconds_per_decision=main.decisions, command=job.command,
        protocol=measure.protocol(
            task, facts, planner=dict(c["planner"]), execute=c["execute"], history=c["history"],
            objective=c["objective"], consistency=c["consistency"],
        ),
    )  # fmt: skip
    clips = pictures.plan_clips(main.episodes, model)
    measure.publish(job, records, found, f"{label} on {task.name}", None, clips)
    job.say(measure.table(rows))
    return found, 0


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
    name = f"{resolve.planner_name(planner)}@true-dynamics"
    model = SimulatorModel(task, workers=int(config["workers"]))
    try:
        policy = PlanningPolicy(model, planner, resolve.state_goal(task), name=name)
        return measure.evaluate(job, env, policy, name, starts, task, facts["budget"], config["seed"])
    finally:
        model.close()
