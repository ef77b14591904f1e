#!/bin/sh
# Installs the system libraries that MuJoCo renders with, and a browser when WORLDPLAN_REQUIRE asks for
# one. Debian and Ubuntu, as root; elsewhere it says what is missing and goes on, because everything
# that needs no picture works without.
set -eu

missing=
has_library() {
    { /sbin/ldconfig -p 2>/dev/null || ldconfig -p 2>/dev/null || true; } | grep -q "$1"
}
want() { # want PACKAGE LIBRARY
    has_library "$2" || missing="$missing $1"
}

case $(uname -s) in Linux) ;; *) exit 0 ;; esac
want libegl1 'libEGL\.so\.1'
want libgl1 'libGL\.so\.1'
want libgl1-mesa-dri 'libgallium\|swrast\|libEGL_mesa'
want libosmesa6 'libOSMesa\.so'
case ",${WORLDPLAN_REQUIRE:-}," in
*,browser,*)
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
        command -v google-chrome >/dev/null || missing="$missing chromium"
    ;;
esac
[ -n "$missing" ] || exit 0

command="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null && $command -qq </dev/null >/dev/null && exit 0
    echo "worldplan setup: could not install$missing" >&2
else
    echo "worldplan setup: for rendering, install as root: $command" >&2
fi
# tests that render are then skipped with a reason, unless WORLDPLAN_REQUIRE makes that a failure
