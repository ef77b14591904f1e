#!/bin/sh
# Installs simulators into .venv. SIMS: mujoco (the default), or robosuite, which includes it.
set -eu

cd "$(dirname "$0")/.."
stamp=.venv/worldplan-sims
sims=${SIMS:-mujoco}
key=$({ cat .venv/worldplan-setup; echo "$sims"; cat requirements/sims.sh requirements/sims.txt requirements/robosuite*.txt; } | cksum)
[ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$key" ] || exit 0

pip() {
    PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip "$@"
}

case $sims in
mujoco)
    pip install --quiet -c constraints.txt -r requirements/sims.txt
    ;;
robosuite)
    pip install --quiet -c constraints.txt -r requirements/robosuite.txt
    pip install --quiet --no-deps -r requirements/robosuite-no-deps.txt
    ;;
*)
    echo "worldplan setup: SIMS is mujoco or robosuite, not $sims" >&2
    exit 2
    ;;
esac
sh requirements/check.sh
echo "$key" >"$stamp"
