"""``worldplan eval``: evaluate one policy in an environment."""

from __future__ import annotations

from typing import Any

from worldplan.cli import measure, resolve
from worldplan.cli.job import Job


def run(job: Job) -> tuple[dict[str, Any], int]:
    """Runs the policy from the starts of the evaluation set; writes records, a result and a report."""
    from worldplan.evaluation import records as room
    from worldplan.evaluation import result

    c = job.config
    resolve.threads(c)
    task = resolve.task(c["env"])
    starts, facts = resolve.start_set(c["starts"], task.name, int(c["episodes"]))
    policy, meta = resolve.policy(str(c["policy"]), task, starts)
    with measure.simulator(task, c, measure.image_size(policy), len(starts)) as env:
        run_ = measure.evaluate(
            job, env, policy, str(c["policy"]), starts, task, facts["budget"], c["seed"], meta=meta
        )
    room.write(job.path("records.jsonl"), run_.records)
    found = result.build(
        task=task.name, policy=str(c["policy"]), success=run_.success, demanding=run_.demanding,
        seconds_per_decision=run_.decisions, protocol=measure.protocol(task, facts), command=job.command,
    )  # fmt: skip
    measure.publish(job, run_.records, found, f"{c['policy']} on {task.name}")
    job.say(measure.table([run_]))
    return found, 0
