"""``worldplan rank``: rank policies inside a world model, and against the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worldplan.cli import measure, pictures, resolve
from worldplan.cli.job import Job
from worldplan.errors import ConfigError, UsageError


def check(config: Mapping[str, Any]) -> None:
    """Refuses a ranking of nobody, or of one policy against itself."""
    names = [str(each) for each in config["policies"]]
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names or twice:
        raise ConfigError(
            "policies cannot be ranked",
            expected="one name or more, each of them once",
            found=f"{', '.join(twice)} more than once" if twice else "none",
            fix="policies=[nothing,random,replay]",
        )


def run(job: Job) -> tuple[dict[str, Any], int]:
    """Runs every policy from the same starts in imagination and in the simulator, and compares."""
    from worldplan.evaluation import records as room
    from worldplan.evaluation import result, validity
    from worldplan.evaluation.ranking import rank

    c = job.config
    resolve.threads(c)
    model = resolve.world_model(str(c["model"]))
    task = resolve.task(c["env"] or model.spec.env)
    resolve.require_task(model, task, str(c["model"]))
    starts, facts = resolve.start_set(c["starts"], task.name, int(c["episodes"]))
    name = resolve.model_name(str(c["model"]))
    judges = {name: model}
    if c["scorer"]:
        second = resolve.model_name(str(c["scorer"]))
        if second in judges:
            raise UsageError(
                "the scorer is the model itself",
                expected="a second world model, trained independently",
                found=f"the same weights in {c['model']} and {c['scorer']}",
                fix="scorer=ANOTHER_CHECKPOINT, or none",
            )
        judges[second] = resolve.world_model(str(c["scorer"]))
        resolve.require_task(judges[second], task, str(c["scorer"]))
    policies = [str(each) for each in c["policies"]]
    elsewhere = outside(str(c["real"])) if c["real"] else []
    measured = compare(job, task, judges, policies, starts, facts, c)
    records = [*(record for each in measured for record in each.records), *elsewhere]
    room.write(job.path("records.jsonl"), records)
    ranking = rank(records, seed=int(c["seed"]))
    real = [episode for each in measured for episode in each.episodes if episode.meta["source"] == "real"]
    dreamt = [
        episode
        for each in measured
        for episode in each.episodes
        if episode.meta["source"] == "model" and episode.meta["model"] == name
    ]
    checked = None
    if real and dreamt:
        units = {"block_px": "px", "agent_px": "px", "block_rad": "rad"}
        checked = validity.validate(
            real, dreamt, errors=task.displacement, units=units, every=task.frame_skip
        )
    found = result.build(
        ranking=ranking, validity=checked, protocol=measure.protocol(task, facts), command=job.command
    )
    title = f"Ranking of {len(policies)} policies on {task.name}"
    measure.publish(job, records, found, title, checked, pictures.rank_clips(real, dreamt))
    job.say(measure.table(measured))
    job.say(agreement_text(found))
    return found, 0


def compare(
    job: Job,
    task: Any,
    judges: dict[str, Any],
    policies: list[str],
    starts: Any,
    facts: dict[str, Any],
    c: dict[str, Any],
) -> list[measure.Measured]:
    """Every named policy in the simulator and in the imagination of its judges."""
    found: list[measure.Measured] = []
    reader = resolve.reader(c.get("reader"), task)
    with measure.simulator(task, c, measure.image_size(*judges.values()), len(starts)) as env:
        for text in policies:
            policy, meta = resolve.policy(text, task, starts)
            found += both(job, env, judges, reader, policy, text, meta, task, starts, facts, c)
    return found


def both(
    job: Job,
    env: Any,
    judges: dict[str, Any],
    reader: Any,
    policy: Any,
    name: str,
    meta: dict[str, Any],
    task: Any,
    starts: Any,
    facts: dict[str, Any],
    c: dict[str, Any],
) -> list[measure.Measured]:
    """One policy in the simulator, in the first judge, and, if it plans with that one, in the others."""
    from worldplan.envs.imagined import ImaginedVectorEnv

    first, keep = next(iter(judges)), measure.filmed(c, starts)
    budget, seed = int(facts["budget"]), int(c["seed"])
    found: list[measure.Measured] = []
    if c["simulator"]:
        found.append(
            measure.evaluate(job, env, policy, name, starts, task, budget, seed, meta=meta, keep=keep)
        )
    for judge, model in judges.items():
        if judge != first and meta.get("plans_with") != first:
            continue
        imagined = ImaginedVectorEnv(
            model, model.decode, reader, env, max_steps=budget, model_id=judge, seed=seed
        )
        found.append(
            measure.evaluate(
                job, imagined, policy, name, starts, task, budget, seed, meta=meta, model=judge, keep=keep
            )
        )
    return found


def outside(path: str) -> list[Any]:
    """Results measured elsewhere, from ``.csv`` or ``.jsonl``."""
    from worldplan.evaluation import records as room
    from worldplan.evaluation import tables

    return tables.read(path) if path.endswith(".csv") else room.read(path)


def agreement_text(found: dict[str, Any]) -> str:
    """Agreement on one line."""
    parts = []
    for key in ("pearson", "spearman", "kendall", "mmrv"):
        value = found["agreement"].get(key)
        if value and value["value"] is not None:
            ends = f" [{value['low']:.2f}, {value['high']:.2f}]" if value["low"] is not None else ""
            parts.append(f"{key} {value['value']:.2f}{ends}")
    return "agreement of imagination with the simulator: " + (", ".join(parts) or "not measured")
