"""``worldplan <verb> [key=value ...]``: flags, errors and exit codes.

Nothing heavy is imported before a verb is known to run, so ``--help`` and ``--version`` answer at once.
"""

from __future__ import annotations

import importlib
import os
import re
import select
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata

from worldplan.cli.arguments import Arguments, parse
from worldplan.errors import ConfigError, WorldplanError, suggest

# verb -> one line of help; each lives in a module of its name below worldplan.cli.verbs
VERBS = {
    "demo": "collect, train, plan, rank and report on Push-T, offline, in minutes",
    "list": "list models | planners | policies | envs | formats | checkpoints",
    "show": "show what a checkpoint is and was measured at",
    "collect": "run a policy in an environment and write its episodes",
    "data": "inspect | check | split a file of episodes",
    "train": "train a world model, a reader or a policy on episodes",
    "plan": "plan with a world model in closed loop, beside the baselines",
    "eval": "evaluate one policy in an environment",
    "rank": "rank policies inside a world model, and against the simulator",
    "compare": "compare two policies of a run, start by start",
    "validate": "compare a world model's imagination with recorded episodes",
    "rollout": "write imagined episodes of a policy",
    "report": "write report.html from the records of a run",
    "doctor": "say what works on this machine, and what to install",
}
USAGE = """usage: worldplan VERB [key=value ...] [flags]

{verbs}

flags:
  --help               this text, or the keys of a verb
  --version            print the version
  --json               one JSON object on stdout, all else on stderr
  --quiet              no progress
  --dry-run            print what would run, and stop
  --cfg                print the composed configuration, and stop
  --config-dir DIR     look for configuration files in DIR first
  --multirun           run every combination of comma-separated values
  --traceback          show where an error came from

exit codes: 0 done; 1 failed while running; 2 wrong use or unusable input;
            3 ran, and the verdict is no; 130 interrupted"""

_ADVICE = re.compile(r"^  (try|expected): .*$", re.MULTILINE)
_TYPED = {"True": "true", "False": "false", "None": "null"}
_WORD = re.compile(r"(?<==)(True|False|None)\b")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    code = 1  # of a run that its reader walked away from
    try:
        code = _answer(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    return code


def _answer(words: Sequence[str]) -> int:
    if "--version" in words:
        print(f"worldplan {version()}")
        return 0
    if not words or words[0] in ("--help", "-h", "help"):
        print(usage())
        return 0
    try:
        verb, arguments = words[0], parse(words[1:])
        if verb not in VERBS:
            raise ConfigError(f"unknown verb {verb!r}", fix=suggest(verb, VERBS))
        return _run(verb, arguments)
    except WorldplanError as error:
        return _report(error, error.exit_code, "--traceback" in words)
    except KeyboardInterrupt:
        print("worldplan: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_left():
            raise
        return _report(error, 1, "--traceback" in words)


def _reader_left() -> bool:
    # a broken pipe may also be one to a worker, which is no reason to be quiet
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _drop_output() -> None:
    # Python flushes once more on its way out, and would complain there
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def version() -> str:
    """Version of the installed package."""
    try:
        return metadata.version("worldplan")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def usage() -> str:
    """The text of ``--help``."""
    return USAGE.format(verbs="\n".join(f"  {verb:<10} {text}" for verb, text in VERBS.items()))


def _run(verb: str, arguments: Arguments) -> int:
    from worldplan.cli import job

    module = importlib.import_module(f"worldplan.cli.verbs.{verb}")
    if arguments.help:
        print(job.verb_help(verb, VERBS[verb], module))
        return 0
    if hasattr(module, "run_plain"):
        job.require_plain(verb, module, arguments)
        return int(module.run_plain(arguments))
    return job.run(verb, module, arguments)


def _report(error: Exception, code: int, traceback: bool) -> int:
    if traceback:
        raise error
    kind = "" if isinstance(error, WorldplanError) else f"{type(error).__name__}: "
    print(f"worldplan: error: {kind}{_spelled(str(error))}", file=sys.stderr)
    if not isinstance(error, WorldplanError):
        print("  try:      the same command with --traceback shows where", file=sys.stderr)
    return code


def _spelled(message: str) -> str:
    """Advice as one would type it here: the library says ``overwrite=True``, a command ``overwrite=true``."""
    return _ADVICE.sub(lambda found: _WORD.sub(lambda word: _TYPED[word[0]], found[0]), message)


if __name__ == "__main__":
    sys.exit(main())
