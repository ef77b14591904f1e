#!/bin/sh
# Sets up .venv from constraints.txt. Does nothing when what it was made from has not changed.
#   PYTHON       interpreter to use; otherwise the newest of 3.13, 3.12, 3.11 that works
#   TORCH_INDEX  package index that holds the wanted build of torch, e.g. PyTorch's CPU one
# Both count when .venv is made; `make clean` first to change them.
set -eu

cd "$(dirname "$0")/.."
EXTRAS="pusht,video,train,report,data,dev"
python=.venv/bin/python
stamp=.venv/worldplan-setup

fresh() {
    { pwd -P
      cat pyproject.toml constraints.txt requirements/no-deps.txt requirements/setup.sh; } | cksum
}

works() { # version shims may exist and fail, so the interpreter has to run
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1
}

find_python() {
    unusable=
    for candidate in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3 python; do
        if ! works "$candidate"; then
            [ "$candidate" != "${PYTHON:-}" ] || fail "PYTHON=$PYTHON does not run, or is not Python 3.11 - 3.13"
            continue
        fi
        if "$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
        unusable=${unusable:-$candidate}
    done
    if [ -n "$unusable" ]; then
        version=$("$unusable" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        fail "$unusable has no venv module; on Debian and Ubuntu: apt-get install python$version-venv"
    fi
    fail "no Python 3.11, 3.12 or 3.13 found. Install one (Debian, Ubuntu: apt-get install python3 python3-venv;
  macOS: brew install python@3.12; elsewhere: python.org), or name one: make setup PYTHON=/path/to/python"
}

fail() {
    printf 'worldplan setup: %s\n' "$1" >&2
    exit 2
}

pip() {
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip "$@"
}

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fresh)" ] && works "$python"; then
    exit 0
fi

chosen=$(find_python)
if ! works "$python" || [ ! -f .venv/pyvenv.cfg ] || ! pip --version >/dev/null 2>&1; then
    echo "creating .venv with $("$chosen" --version) ($chosen)"
    rm -rf .venv
    "$chosen" -m venv .venv
fi
rm -f "$stamp"

# alone and first: the only package for which it matters where it comes from
echo "installing torch (the largest download; the builds are listed on pytorch.org/get-started)"
quiet=--quiet
[ ! -t 1 ] || quiet= # people see the download go
pip install $quiet -c constraints.txt ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch
echo "installing worldplan[$EXTRAS]"
pip install --quiet -c constraints.txt -e ".[$EXTRAS]"
pip install --quiet --no-deps -r requirements/no-deps.txt
sh requirements/check.sh
fresh >"$stamp"
echo "ready: .venv/bin/worldplan --help"
