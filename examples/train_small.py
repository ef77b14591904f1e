"""Collect episodes, train a small world model on them, save it as a checkpoint, and load that.

    python examples/train_small.py [--episodes 8] [--seconds 20] [--out runs/my-model]

This shows the steps; a model that plans well takes hundreds of episodes and about an hour.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import worldplan as wp
from worldplan import checkpoint
from worldplan.data import native
from worldplan.data.split import split
from worldplan.models.lewm_config import LeWMConfig
from worldplan.policies.pusht_scripted import PushTScripted


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60, help="environment steps per episode")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=Path("runs/my-model"))
    options = parser.parse_args(argv)

    task = wp.task("pusht")
    with tempfile.TemporaryDirectory() as folder:
        env = wp.SimVectorEnv(task, num_envs=4)
        starts = [wp.Start(id=f"start-{i}", seed=i) for i in range(options.episodes)]
        played = wp.collect(env, PushTScripted(), starts, max_steps=options.steps)
        native.write(f"{folder}/episodes.h5", played)
        env.close()

        dataset = wp.open_dataset(f"{folder}/episodes.h5")
        train, held_out = split(dataset, held_out=0.25)
        # four frames, one model step (five environment steps) apart
        windows = wp.Windows(dataset, steps=4, frame_skip=task.frame_skip, episodes=train)
        print(f"{len(train)} episodes to train on, {len(held_out)} held out, {len(windows)} windows")

        config = LeWMConfig(rollout_steps=2)
        model = wp.LeWM(config, config.spec(task.name, task.action))
        rows = dataset.rows(train)
        model.fit_statistics({key: dataset.array(key, rows) for key in ("pixels", "action")})
        batches = windows.sampler(options.batch_size).__getitem__
        for record in wp.fit(model, batches, steps=10_000, log_every=10, max_seconds=options.seconds):
            print(f"step {record.step}: loss {record.loss:.3f}")
        dataset.close()

    saved = checkpoint.save_pretrained(model, options.out, overwrite=True)
    print(f"saved {saved}, which loads as {type(wp.load(str(saved))).__name__}")


if __name__ == "__main__":
    main()
