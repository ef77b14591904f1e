"""One run of a verb: its configuration, its output folder, its result."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from worldplan.cli import values
from worldplan.cli.arguments import Arguments, listed
from worldplan.cli.folder import CONFIG, RESULT, prepare
from worldplan.errors import ConfigError, UsageError, suggest

_CHOICES = ("model", "planner")  # keys that may also name a packaged configuration
# what verbs that evaluate write besides; verbs that write other things name them in a LEFTOVERS of their own
LEFTOVERS = ("records.jsonl", "report.html", "validity.json", "clips")


@dataclass(frozen=True)
class Job:
    """What a verb is given.

    Attributes:
        verb: its name.
        config: the composed configuration as plain values, references included.
        arguments: the words it came from.
        out: the folder to write to, made already; None for verbs that write nothing.
        command: the command as one would type it.
    """

    verb: str
    config: dict[str, Any]
    arguments: Arguments
    out: Path | None
    command: str
    quiet: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Prints a line for people, on stderr under ``--json``."""
        if not self.quiet:
            print(text, file=sys.stderr if self.arguments.json else sys.stdout, flush=True)

    @contextmanager
    def progress(self, title: str, total: int | None = None) -> Iterator[Any]:
        """A progress bar; yields ``update(done, total)``. Plain lines where stderr is no terminal."""
        if self.quiet:
            yield lambda done, total=None: None
            return
        if not sys.stderr.isatty():
            yield _Lines(title)
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = ("[bold]{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        parts = [TextColumn(c) if isinstance(c, str) else c for c in columns]
        with Progress(*parts, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done, total=None: bar.update(task, completed=done, total=total)

    def path(self, name: str) -> Path:
        """A file of this run."""
        assert self.out is not None, f"{self.verb} has no output folder"
        return self.out / name


class _Lines:
    """Progress for logs: at most one line in five seconds."""

    def __init__(self, title: str) -> None:
        self.title, self.last = title, time.perf_counter()

    def __call__(self, done: float, total: float | None = None) -> None:
        now = time.perf_counter()
        if now - self.last > 5 or (total is not None and done >= total):
            self.last = now
            print(f"{self.title}: {done:g}{f' of {total:g}' if total else ''}", file=sys.stderr, flush=True)


def run(verb: str, module: ModuleType, arguments: Arguments) -> int:
    """Composes, prepares the output folder, calls the verb, writes what it returns."""
    if arguments.words and not getattr(module, "WORDS", False):
        raise ConfigError(f"{arguments.words[0]!r} is not understood", expected="key=value")
    if not arguments.multirun:
        return _once(verb, module, arguments)
    runs = list(_combinations(arguments, bool(getattr(module, "OUT_IS_FILE", False))))
    for each in runs:  # a combination that is refused stops all of them before the first begins
        _checked(verb, module, each)
    return max((_once(verb, module, each) for each in runs), default=0)


def require_plain(verb: str, module: ModuleType, arguments: Arguments) -> None:
    """Refuses what a verb without a configuration would ignore: keys, and combinations of them.

    Raises:
        ConfigError: names the first such word.
    """
    given = [*arguments.overrides, *(f"{key}={value}" for key, value in arguments.references.items())]
    given = [] if getattr(module, "KEYS", False) else given
    if arguments.multirun or given:
        raise ConfigError(
            f"{verb} takes no {'--multirun' if arguments.multirun else 'keys'}",
            expected=f"worldplan {verb} {getattr(module, 'USAGE', '')}".rstrip(),
            found="--multirun" if arguments.multirun else given[0],
            fix=f"worldplan {verb} --help",
        )


def _checked(verb: str, module: ModuleType, arguments: Arguments) -> dict[str, Any]:
    config = compose(verb, arguments)
    if hasattr(module, "check"):
        module.check(config)
    return config


def _once(verb: str, module: ModuleType, arguments: Arguments) -> int:
    config = _checked(verb, module, arguments)
    if arguments.cfg:
        import yaml

        print(yaml.safe_dump(config, sort_keys=False), end="")
        return 0
    command = shlex.join(["worldplan", verb, *_words(arguments)])
    if arguments.dry_run:
        print(f"{command}\nwould run with:\n{json.dumps(config, indent=2)}")
        return 0
    if "out" in config and not getattr(module, "OUT_IS_FILE", False):
        with prepare(config, verb, getattr(module, "LEFTOVERS", LEFTOVERS)) as out:
            write_json(out / CONFIG, {"verb": verb, "command": command, "config": config})
            job = Job(verb, config, arguments, out, command, arguments.quiet)
            result, code = module.run(job)
            if result is not None:
                write_json(out / RESULT, result)
            job.say(f"written to {out}")
    else:
        result, code = module.run(Job(verb, config, arguments, None, command, arguments.quiet))
    if arguments.json:
        print(json.dumps(result, allow_nan=False))
    return int(code)


def compose(verb: str, arguments: Arguments) -> dict[str, Any]:
    """The configuration of a verb as plain values.

    Raises:
        ConfigError: a key or choice is unknown, a value is of another kind than its default, or a
            mandatory one is missing.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    overrides = list(arguments.overrides)
    references = dict(arguments.references)
    for key in _CHOICES:
        if (
            key in references
            and references[key] in values.choices(key)
            and (verb == "train" or key != "model")
        ):
            overrides.append(f"{key}={references.pop(key)}")
    if arguments.config_dir is not None:
        folder = os.path.abspath(arguments.config_dir)
        if not os.path.isdir(folder):
            raise ConfigError(
                f"--config-dir {arguments.config_dir} is not a folder",
                expected="a folder of configuration files",
                found="a file" if os.path.exists(folder) else "nothing of that name",
            )
        quoted = folder.replace("\\", "\\\\").replace("'", "\\'")
        overrides.append(f"hydra.searchpath=['file://{quoted}']")
    GlobalHydra.instance().clear()
    try:
        with initialize_config_module("worldplan.configs", version_base="1.3"):
            composed = hydra_compose(verb, overrides)
        config = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise _unusable(verb, overrides, error) from error
    assert isinstance(config, dict)
    plain: dict[str, Any] = {str(key): value for key, value in config.items()}
    packaged = values.defaults(verb)
    for key, value in references.items():
        if key not in plain:
            raise ConfigError(
                f"{verb} has no key {key!r}",
                expected=f"a key that worldplan {verb} --help lists",
                found=f"{key}={value}",
                fix=suggest(key, plain),
            )
        plain[key] = value
    for key, value in plain.items():
        if isinstance(value, str) and isinstance(packaged.get(key), list):
            plain[key] = listed(value)
    missing = [key for key, value in plain.items() if value == "???"]
    if missing:
        raise ConfigError(
            f"{verb} needs {', '.join(missing)}",
            fix=f"worldplan {verb} {missing[0]}=...; worldplan {verb} --help",
        )
    values.check(plain, packaged)
    return plain


def build(config: Mapping[str, Any]) -> Any:
    """Instantiates a packaged configuration that names its class."""
    from hydra.utils import instantiate

    target = str(config.get("_target_", ""))
    if not target.startswith("worldplan."):
        raise ConfigError(
            "only worldplan's own classes are built from a configuration",
            expected="_target_: worldplan....",
            found=target or "no _target_",
            fix="name your own with module:attribute",
        )
    try:
        return instantiate(dict(config), _convert_="all")
    except UsageError:
        raise
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, UsageError):
            raise cause from error
        raise ConfigError(f"{target} cannot be built", found=str(cause)) from error


def write_json(path: Path, value: Any) -> None:
    """Writes JSON whole or not at all."""
    from worldplan.evaluation import files

    files.write_text(path, files.dumps(value, indent=2) + "\n")


def verb_help(verb: str, text: str, module: ModuleType) -> str:
    """Help of one verb: what it does, its keys with their defaults, and what can be chosen as a whole."""
    lines = [f"usage: worldplan {verb} {getattr(module, 'USAGE', '[key=value ...]')}", "", text]
    if not hasattr(module, "run_plain"):
        from importlib import resources

        raw = (resources.files("worldplan.configs") / f"{verb}.yaml").read_text(encoding="utf-8")
        chosen, keys = values.split_defaults(raw)
        lines += ["", "keys and defaults:", *(f"  {line}" for line in keys)]
        if chosen:
            lines += ["", "choices, the first the default:"]
        for group, default in chosen.items():
            others = [name for name in values.choices(group) if name != default]
            inner = next(key for key in values.defaults(verb)[group] if key != "_target_")
            lines += [f"  {group}={'|'.join([default, *others])}"]
            lines += [f"  with keys of its own, as {group}.{inner}=...; --cfg prints them all"]
    return "\n".join(lines)


def _words(arguments: Arguments) -> list[str]:
    references = [f"{key}={value}" for key, value in arguments.references.items()]
    return [*arguments.words, *references, *arguments.overrides]


def _combinations(arguments: Arguments, out_is_file: bool) -> Iterator[Arguments]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(arguments.overrides))
        options = [
            [f"{o.key_or_group}={value}" for value in o.sweep_string_iterator()]
            if o.is_sweep_override()
            else [text]
            for o, text in zip(parsed, arguments.overrides, strict=True)
        ]
    except HydraException as error:
        raise ConfigError(
            "the combinations cannot be made out",
            expected="key=a,b,c, key=range(0,3) or key=choice(a,b)",
            found=str(error).strip().splitlines()[0],
        ) from error
    named = arguments.references.get("out")
    base = Path(named or f"runs/multirun-{time.strftime('%Y%m%d-%H%M%S')}")
    for number, combination in enumerate(itertools.product(*options)):
        out = base.with_name(f"{base.stem}-{number}{base.suffix}") if out_is_file else base / str(number)
        # a file has no name of its own, and the verb asks for one
        more = {} if out_is_file and not named else {"out": str(out)}
        yield replace(arguments, overrides=tuple(combination), references={**arguments.references, **more})


def _unusable(verb: str, overrides: list[str], error: Exception) -> ConfigError:
    import re

    text = str(error).strip()
    first = next((line for line in text.splitlines() if line.strip()), text)
    found = re.search(r"Key '([^']+)' is not in struct|Could not override '([^']+)'", text)
    if found:
        key = found.group(1) or found.group(2)
        known = _known_keys(verb)
        return ConfigError(
            f"{verb} has no key {key!r}",
            expected=f"a key that worldplan {verb} --help lists",
            found=" ".join(overrides),
            fix=suggest(key, known),
        )
    if absent := re.search(r"Could not find '(\w+)/([^']+)'", text):
        return values.unknown_choice(*absent.groups())
    return ConfigError(
        f"the configuration of {verb} cannot be composed",
        expected="key=value, lists as [a,b], odd text in quotes",
        found=first,
        fix=f"worldplan {verb} --help",
    )


def _known_keys(verb: str) -> list[str]:
    known = values.defaults(verb)
    nested = [f"{key}.{inner}" for key, group in known.items() if isinstance(group, dict) for inner in group]
    return sorted({*known, *(name for name in nested if not name.endswith("._target_"))})
