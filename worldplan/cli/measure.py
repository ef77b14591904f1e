"""What `plan`, `eval`, `rank` and `demo` measure alike: policies, run and reduced to records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from worldplan.cli.job import Job
from worldplan.types import Episode, Estimate, EvalRecord, Policy, Start

VALIDITY, CLIPS = "validity.json", "clips"  # beside records.jsonl


@dataclass(frozen=True)
class Measured:
    """One policy in one environment.

    Attributes:
        policy: its name.
        records: one per episode.
        success: over all episodes.
        demanding: over those whose goal moves or turns the object.
        decisions: seconds per decision, p50 and p95.
        episodes: those that were kept, for videos and validity.
    """

    policy: str
    records: list[EvalRecord]
    success: Estimate
    demanding: Estimate
    decisions: dict[str, Estimate]
    episodes: list[Episode] = field(default_factory=list)


@contextmanager
def simulator(task: Any, config: Mapping[str, Any], size: int, count: int) -> Iterator[Any]:
    """The task's simulator, closed at the end."""
    from worldplan.envs.vector import SimVectorEnv

    rows = min(int(config.get("num_envs") or 20), count)
    env = SimVectorEnv(task, rows, workers=int(config.get("workers") or 0), image_size=size)
    try:
        yield env
    finally:
        env.close()


def image_size(*modules: Any) -> int:
    """Height of the frames that models or policies were trained on; 64 where none says."""
    for module in modules:
        spec = getattr(getattr(module, "model", module), "spec", None)
        if spec is not None and spec.pixels:
            return int(spec.obs[spec.pixels][-1])
    return 64


def evaluate(
    job: Job,
    env: Any,
    policy: Policy,
    name: str,
    starts: Sequence[Start],
    task: Any,
    budget: int,
    seed: int,
    *,
    meta: Mapping[str, Any] | None = None,
    model: str | None = None,
    keep: int = 0,
) -> Measured:
    """Runs a policy once per start; keeps the frames of the first `keep` episodes."""
    from worldplan.evaluation import estimates
    from worldplan.evaluation.records import records_from_episodes
    from worldplan.loop import collect

    records: list[EvalRecord] = []
    kept: list[Episode] = []
    seconds: list[float] = []
    title = f"{name} in {'imagination' if model else 'the simulator'}"
    with job.progress(title, len(starts)) as update:
        for first, share, shown_later in ((0, starts[:keep], True), (keep, starts[keep:], False)):
            if not share:
                continue
            episodes = collect(
                env,
                policy,
                share,
                max_steps=budget,
                seed=seed,
                policy_name=name,
                keep_obs=shown_later,
                progress=partial(_advance, update, first, len(starts)),
            )
            for episode in episodes:
                kept += [episode] if shown_later else []
                rows = max(1, int(episode.meta.get("rows") or 1))
                seconds += [each / rows for each in episode.meta.get("seconds_per_decision") or ()]
                records += records_from_episodes([episode], task, name, model=model, starts=share, meta=meta)
    decisions = {f"p{int(q * 100)}": estimates.quantile(seconds, q) for q in (0.5, 0.95)} if seconds else {}
    return Measured(
        name,
        records,
        estimates.rate(record.success for record in records),
        estimates.rate(record.success for record in records if record.meta.get("demanding")),
        decisions,
        kept,
    )


def _advance(update: Any, before: int, total: int, done: int, _: int) -> None:
    update(before + done, total)


def publish(
    job: Job,
    records: Sequence[EvalRecord],
    found: Mapping[str, Any],
    title: str,
    validity: Any = None,
    clips: Sequence[Any] = (),
) -> None:
    """Writes the report, and beside the records what it cannot be computed from: validity and clips.

    Where the extra ``report`` is missing, says so: hours of episodes are not lost to a page.
    """
    from worldplan.errors import MissingExtra
    from worldplan.evaluation import files, videos
    from worldplan.evaluation.report import report

    if validity is not None:
        files.write_text(job.path(VALIDITY), files.dumps(validity.to_json(), indent=2) + "\n")
    if clips:
        videos.save(job.path(CLIPS), clips)
    try:
        report(records, job.path("report.html"), result=found, validity=validity, videos=clips, title=title)
    except MissingExtra as error:
        job.say(f"no report.html yet: {error}\n  then:     worldplan report {job.out}")


def filmed(config: Mapping[str, Any], starts: Sequence[Start]) -> int:
    """How many episodes to keep for videos.

    Raises:
        MissingExtra: videos are wanted and cannot be drawn; said before an episode is run.
    """
    from worldplan.errors import require

    number = min(int(config["videos"] or 0), len(starts))
    if number:
        require("PIL.Image", "report")
    return number


def protocol(task: Any, facts: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """How success was measured, for ``result.json``."""
    return {"success": task.success_text, **facts, **more}


def shown(estimate: Estimate) -> str:
    """An estimate for people: percent with its interval."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "n/a"
    return f"{100 * estimate.value:5.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def table(rows: Sequence[Measured]) -> str:
    """Success of several policies, one a line."""
    head = ("policy", "where", "success, all pairs", "demanding pairs", "n", "s/decision p50")
    lines = [head, *(_line(row) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _line(row: Measured) -> tuple[str, ...]:
    half = row.decisions.get("p50")
    seconds = f"{half.value:.3f}" if half is not None and half.value is not None else "-"
    where = next((record.model for record in row.records if record.source == "model"), None) or "simulator"
    return row.policy, where, shown(row.success), shown(row.demanding), str(row.success.n), seconds
