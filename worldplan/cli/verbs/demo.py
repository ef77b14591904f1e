"""``worldplan demo``: the whole journey on Push-T, offline, in minutes.

Collects episodes, trains a small world model on them, plans with it and with the shipped reference,
ranks policies in imagination and in the simulator, and writes one report.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from worldplan.cli import measure, pictures, resolve
from worldplan.cli.arguments import Arguments
from worldplan.cli.job import LEFTOVERS as REPORTED
from worldplan.cli.job import Job, compose, write_json
from worldplan.cli.verbs import collect, rank, train

REFERENCE, SECOND, CLONE = "pusht-lewm-small", "pusht-lewm-second", "pusht-gcbc"
PLANNER = {
    "_target_": "worldplan.planners.cem.CEM",
    "num_samples": 200,
    "num_iterations": 8,
    "num_elites": 20,
}
POLICIES = ("nothing", "random", "replay", "replay+noise0.1", "replay+noise0.3", CLONE)
LEFTOVERS = ("episodes.h5", "episodes.h5.cache", "model", *REPORTED)


def run(job: Job) -> tuple[dict[str, Any], int]:
    """Runs the five steps and prints the path of the report."""
    from worldplan.evaluation import records as room
    from worldplan.evaluation import result, validity
    from worldplan.evaluation.ranking import rank as order

    c, began = job.config, time.perf_counter()
    assert job.out is not None
    resolve.threads(c)
    task = resolve.task("pusht")

    job.say("1/5  collecting episodes in Push-T")
    data = str(job.path("episodes.h5"))
    chosen = [f"{key}={c[key]}" for key in ("episodes", "workers", "seed")]
    step = _step(job, "collect", chosen, env="pusht", policy="scripted", out=data)
    collect.run(step)

    job.say(f"2/5  training a small world model for {c['train_seconds']:g} seconds")
    seconds = float(c["train_seconds"])
    settings = [
        f"train.max_seconds={seconds}",
        f"train.threads={c['threads']}",
        "train.steps=100000",
        "train.head_steps=150",
    ]
    step = _step(
        job,
        "train",
        [*settings, "model=lewm_small", "train.probe_every=0"],
        data=data,
        out=str(job.path("model")),
    )
    step.path("").mkdir(exist_ok=True)
    trained, _ = train.run(step)
    write_json(step.path("result.json"), trained)
    fresh = str(step.path("checkpoint"))

    job.say("3/5  planning in closed loop with the new model and the reference")
    starts, facts = resolve.start_set(None, "pusht", int(c["plan_episodes"]))
    reference, new = resolve.world_model(REFERENCE), resolve.world_model(fresh)
    settings_ = {"num_envs": 20, "workers": c["workers"]}
    planned: list[measure.Measured] = []
    with measure.simulator(task, settings_, 64, len(starts)) as env:
        for name, model in ((REFERENCE, reference), ("trained-here", new)):
            policy = resolve.planning_policy(model, resolve.planner(PLANNER), task, name=f"cem@{name}")
            planned.append(
                measure.evaluate(
                    job,
                    env,
                    policy,
                    f"cem@{name}",
                    starts,
                    task,
                    facts["budget"],
                    c["seed"],
                    meta={"plans_with": name},
                    keep=2,
                )  # fmt: skip
            )

    job.say("4/5  ranking policies in imagination and in the simulator")
    starts, facts = resolve.start_set(None, "pusht", int(c["rank_episodes"]))
    ranking_config = {
        **settings_,
        "num_envs": 40,
        "simulator": True,
        "videos": 1,
        "seed": c["seed"],
        "reader": None,
    }
    judges = {REFERENCE: reference, SECOND: resolve.world_model(SECOND)}
    planner, reader = resolve.planner(PLANNER), resolve.reader(None, task)
    measured: list[measure.Measured] = []
    with measure.simulator(task, ranking_config, 64, len(starts)) as env:
        for text in POLICIES:
            policy, meta = resolve.policy(text, task, starts)
            measured += rank.both(
                job, env, judges, reader, policy, text, meta, task, starts, facts, ranking_config
            )
        for name, model in ((REFERENCE, reference), ("trained-here", new)):
            label, meta = f"cem@{name}", {"plans_with": name}
            planning = resolve.planning_policy(model, planner, task, name=label)
            measured += rank.both(
                job, env, judges, reader, planning, label, meta, task, starts, facts, ranking_config
            )

    job.say("5/5  writing the report")
    records = [record for each in measured for record in each.records]
    room.write(job.path("records.jsonl"), records)
    real = [e for each in measured for e in each.episodes if e.meta["source"] == "real"]
    dreamt = [e for each in measured for e in each.episodes if e.meta.get("model") == REFERENCE]
    units = {"block_px": "px", "agent_px": "px", "block_rad": "rad"}
    checked = validity.validate(real, dreamt, errors=task.displacement, units=units, every=task.frame_skip)
    took = time.perf_counter() - began
    found = result.build(
        ranking=order(records), validity=checked, success=planned[0].success, demanding=planned[0].demanding,
        policy=planned[0].policy, seconds_per_decision=planned[0].decisions, command=job.command,
        protocol=measure.protocol(task, facts, planner=PLANNER),
        notes=[
            f"the demo took {took:.0f} s",
            f"the model trained here saw {c['episodes']} episodes for {seconds:g} s",
        ],
        extra={"planned": {each.policy: measure.shown(each.success) for each in planned}},
    )  # fmt: skip
    clips = pictures.plan_clips(planned[0].episodes, reference) + pictures.rank_clips(real, dreamt)
    title = "worldplan demo: planning and policy ranking on Push-T"
    measure.publish(job, records, found, title, checked, clips)
    job.say(measure.table([*planned, *measured]))
    job.say(rank.agreement_text(found))
    job.say(f"done in {took:.0f} s; open {job.path('report.html')}")
    return found, 0


def _step(job: Job, verb: str, overrides: list[str], **references: str) -> Job:
    arguments = Arguments(tuple(overrides), dict(references), json=job.arguments.json, quiet=job.quiet)
    config = compose(verb, arguments)
    out = Path(config["out"]) if verb == "train" else None
    return replace(job, verb=verb, config=config, arguments=arguments, out=out)
