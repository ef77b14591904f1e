#!/bin/sh
# pip check, except for the packages that are installed without what they ask for.
set -eu

cd "$(dirname "$0")/.."
ALLOWED='gym-pusht|robosuite|robomimic'
found=$(PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip check 2>&1 || true)
broken=$(printf '%s\n' "$found" | grep -Ev "^($ALLOWED) |^No broken requirements|^WARNING" || true)
if [ -n "$broken" ]; then
    printf 'worldplan setup: installed packages disagree:\n%s\n' "$broken" >&2
    exit 1
fi
