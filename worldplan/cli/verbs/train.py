"""``worldplan train``: train a world model, a reader or a policy on episodes."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from worldplan.cli import resolve
from worldplan.cli.job import Job, build
from worldplan.cli.probing import Probe, reading_errors
from worldplan.errors import DataError

USAGE = "model=lewm_small data=FILE.h5 [out=FOLDER] [key=value ...]"
LEFTOVERS = ("model", "refine", "heads", "checkpoint")  # what overwrite=true clears


def run(job: Job) -> tuple[dict[str, Any], int]:
    """Trains on the episodes that are not held out, probes on those that are, and saves a checkpoint."""
    import torch

    from worldplan import checkpoint
    from worldplan.data import native
    from worldplan.data.split import split
    from worldplan.data.windows import Windows

    c, settings = job.config, job.config["train"]
    assert job.out is not None
    torch.set_num_threads(max(1, int(settings["threads"])))
    dataset = native.open(str(c["data"]))
    task = resolve.task(str(c["env"] or dataset.attrs.get("env")))
    train, test = split(dataset, held_out=float(c["held_out"]))
    module, config = untrained(c["model"], task)
    require_frames(dataset, config)
    frame_skip, frames = task.frame_skip, int(settings["frames"])
    windows = Windows(dataset, frames, frame_skip, train, ("pixels", "state"), cache=bool(c["cache"]))
    job.say(repr(windows))
    with seeded(int(c["seed"])):
        module, config = untrained(c["model"], task)
    module.fit_statistics(columns(dataset, train))
    probe = Probe(dataset, train, test, task) if hasattr(module, "predict") else None
    seconds = _fit(
        job, module, windows, settings, probe, "model", float(settings["max_seconds"] or 0) or None
    )
    module.eval()
    if hasattr(module, "predictor"):
        seconds += further(job, module, windows, settings)
    measured = probe(module) if probe is not None else held_out_loss(module, windows, dataset, test)
    if hasattr(module, "judge"):
        measured |= reading_errors(module, dataset, test, task)
    training = {
        "command": job.command,
        "data": {
            "file": dataset.path.name,
            "episodes": len(train),
            "rows": int(dataset.num_rows),
            "attrs": dict(dataset.attrs),
        },
        "held_out_episodes": [int(i) for i in test],
        "seed": int(c["seed"]),
        "seconds": seconds,
        "settings": dict(settings),
        "model": asdict(config),
    }
    folder = checkpoint.save_pretrained(
        module, job.path("checkpoint"), training=training, result={"held_out": measured}, overwrite=True,
        dtype=torch.float16,
    )  # fmt: skip
    job.say(f"checkpoint: {folder}")
    return {"checkpoint": str(folder), "seconds": seconds, "held_out": measured}, 0


def further(job: Job, module: Any, windows: Any, settings: dict[str, Any]) -> float:
    """Trains predictor and heads on latents that are computed once; returns the seconds.

    Heads that will look at fewer frames than the file holds have theirs encoded as they come.
    """
    from worldplan.data.windows import Windows
    from worldplan.models.heads import HeadTraining
    from worldplan.models.refine import LATENT, PredictorTraining

    refines = bool(settings["refine_steps"])
    draws = bool(module.heads.names) and not module.config.head_weight
    if not refines and not draws:
        return 0.0
    began, dataset, keys = time.perf_counter(), windows.dataset, windows.keys
    looked_at = 2 * int(settings["head_steps"]) * int(settings["head_batch_size"])
    if refines or looked_at >= dataset.num_rows:
        dataset = dataset.with_columns({LATENT: latents(job, module, dataset)})
        keys = (*keys, LATENT)
    seconds = time.perf_counter() - began

    def part(name: str, trainable: Any, frames: int, keys: tuple[str, ...], prefix: str) -> float:
        own = Windows(dataset, frames, windows.frame_skip, windows.episodes, keys, cache=job.config["cache"])
        changes = {key: settings[f"{prefix}_{key}"] for key in ("steps", "batch_size", "lr")}
        return _fit(job, trainable, own, {**settings, **changes, "probe_every": 0}, None, name, None)

    if refines:
        seconds += part("refine", PredictorTraining(module), windows.steps, (LATENT,), "refine")
        module.eval()
    if draws:
        seconds += part("heads", HeadTraining(module), 2, keys, "head")
        module.eval()
    return seconds


def latents(job: Job, module: Any, dataset: Any) -> Any:
    """Those of all frames of a file."""
    from worldplan.data.cache import cached
    from worldplan.models.refine import embedded

    key = module.spec.pixels
    frames = cached(dataset, key) if job.config["cache"] else None

    def read(rows: slice) -> dict[str, Any]:
        return {key: dataset.array(key, rows) if frames is None else frames[rows]}

    with job.progress("embedding the frames", dataset.num_rows) as update:
        return embedded(module, read, dataset.num_rows, progress=update)


def untrained(configured: Any, task: Any) -> tuple[Any, Any]:
    """A module from a packaged configuration, fitted to a task's actions and states."""
    from worldplan.checkpoint.keys import class_of

    config = build(configured)
    names = {each.name for each in fields(config)}
    if "state_dim" in names:
        config = replace(config, state_dim=len(task.state_names), state_angles=resolve.angles(task))
    if "frame_skip" in names:
        config = replace(config, frame_skip=task.frame_skip)
    cls = class_of(config.KEY, Path("the configuration of the model"))
    spec = config.spec(task.name, task.action) if hasattr(config, "spec") else None
    return cls(config, spec), config


def require_frames(dataset: Any, config: Any) -> None:
    """Refuses a file of frames of another size than the model looks at; the windows refuse other layouts.

    Raises:
        DataError: the frames are square pictures of another size.
    """
    size = getattr(config, "image_size", None)
    if size is None or getattr(config, "inputs", "pixels") != "pixels":
        return
    found = tuple(dataset.column("pixels").shape)
    square = len(found) == 3 and found[0] == found[1] and found[2] == 3
    if square and found[0] != size:
        raise DataError(
            f"the frames of {dataset.path.name} are not of the size the model looks at",
            expected=f"pixels of {size} x {size} x 3",
            found=" x ".join(map(str, found)),
            fix=f"model.image_size={found[0]}, or worldplan collect image_size={size}",
        )


def seeded(seed: int) -> Any:
    """PyTorch's generator seeded for the initial weights, and put back afterwards."""
    from contextlib import contextmanager

    import torch

    from worldplan.seeding import derive

    @contextmanager
    def scope() -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive(seed, "weights"))
            yield

    return scope()


def columns(dataset: Any, episodes: Any, most: int = 200_000) -> dict[str, Any]:
    """Training rows to measure statistics on; frames are thinned to some thousand."""
    import numpy as np

    rows = dataset.rows(episodes)
    thin = rows[:: max(1, len(rows) // most)]
    few = rows[:: max(1, len(rows) // 2000)]
    found = {key: np.asarray(dataset.array(key, thin)) for key in ("action", "state")}
    return {**found, "pixels": np.asarray(dataset.array("pixels", few))}


def held_out_loss(module: Any, windows: Any, dataset: Any, test: Any) -> dict[str, float]:
    """Mean loss on held-out windows."""
    import torch

    from worldplan.data.windows import Windows
    from worldplan.seeding import Noise

    held = Windows(dataset, windows.steps, windows.frame_skip, test, windows.keys)
    sampler = held.sampler(64, seed=0)
    with torch.no_grad():
        batches = [sampler[i] for i in range(min(8, len(sampler)))]
        losses = [float(module.loss(each, Noise.of(0, len(each.mask)), 0)[0]) for each in batches]
    return {"loss": sum(losses) / len(losses)}


def _fit(
    job: Job,
    module: Any,
    windows: Any,
    settings: dict[str, Any],
    probe: Any,
    part: str,
    max_seconds: float | None,
) -> float:
    from worldplan.training import tracking
    from worldplan.training.fit import LAST, fit
    from worldplan.training.optimizers import AdamW
    from worldplan.training.resume import load_facts
    from worldplan.training.schedules import Schedule

    steps, every = int(settings["steps"]), int(settings["probe_every"] or 0)
    sampler = windows.sampler(int(settings["batch_size"]), seed=int(job.config["seed"]))
    folder = Path(job.path(part))
    state = folder / LAST
    resuming = bool(job.config["resume"]) and state.exists()
    facts = load_facts(state) if resuming else {}
    seconds = float(facts.get("elapsed", 0.0))  # a part that was finished before adds no record
    kinds = [kind for kind in job.config["trackers"] if kind != "jsonl"]
    records = fit(
        module,
        sampler.__getitem__,
        steps=steps,
        optimizer=AdamW(lr=float(settings["lr"]), weight_decay=float(settings["weight_decay"])),
        schedule=Schedule(warmup=float(settings["warmup"])),
        clip_norm=float(settings["clip_norm"]),
        seed=int(job.config["seed"]),
        precision=settings["precision"],
        max_seconds=max_seconds,
        log_every=int(settings["log_every"]),
        checkpoint_every=int(settings["checkpoint_every"]),
        folder=folder,
        resume=resuming,
        config={"model": job.config["model"], "data": Path(str(job.config["data"])).name},
    )
    total = max_seconds if max_seconds is not None else steps
    with (
        closing(records),
        tracking.open(folder, kinds, since=int(facts.get("step", 0)), config=job.config) as log,
        job.progress(f"training the {part}", int(total)) as update,
    ):
        next_probe = every
        for record in records:
            metrics = dict(record.metrics)
            if probe is not None and every and record.step >= next_probe:
                metrics |= {key: value for key, value in probe(module).items() if value is not None}
                next_probe = record.step + every
            log(record.step, {"loss": record.loss, **metrics})
            update(record.elapsed if max_seconds is not None else record.step, total)
            seconds = record.elapsed
    if not resuming and seconds == 0.0:
        raise DataError("training took no step", fix="more train.steps or train.max_seconds")
    return seconds
