#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints the path of a Python with PyTorch 2.13 (CPU) for the tests that need a recent one: $PROBING_TORCH2, or else a
# virtual environment in the user's cache, which is made once if pip can get the CPU build.
#
#   .ci/torch-venv.sh          if there is none: exit code 1, and the reason on stderr
#
# $PROBING_TORCH_INDEX: where pip finds the CPU builds (the CPU index that PyTorch's own instructions name), if pip's configuration
# does not say it. The large build for GPUs is fetched only with PROBING_TORCH_ANY=1 (make demo, if apt has no PyTorch).
set -u
version=2.13.0
if [ -n "${PROBING_TORCH2:-}" ]; then
    "$PROBING_TORCH2" -c 'import torch' 2>/dev/null && echo "$PROBING_TORCH2" && exit 0
    echo "PROBING_TORCH2=$PROBING_TORCH2 cannot import torch" >&2
    exit 1
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/probing
venv=$cache/venv-torch-$version
python=$venv/bin/python
if [ -e "$venv/.ready" ] && [ -x "$python" ]; then
    echo "$python"
    exit 0
fi
mkdir -p "$cache" || exit 1
exec 9>"$cache/venv-torch.lock"
flock 9
if [ -e "$venv/.ready" ]; then
    echo "$python"
    exit 0
fi
# Tests install nothing: tests/run.sh has already fetched what they may use.
[ -z "${PROBING_NO_FETCH:-}" ] || { echo "none in $venv, and fetching it failed, or make test was not asked to" >&2; exit 1; }
# Prefers a Python with a shared libpython: the system's own is of the other kind, and tested with its own PyTorch.
base=
for p in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.11.*/bin/python3 python3.11 python3.12 python3.13 python3; do
    if path=$(command -v "$p") && "$path" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
        base=$path
        break
    fi
done
[ -n "$base" ] || {
    echo "no Python 3.10 to 3.13 that can make virtual environments" >&2
    exit 1
}
log=$cache/venv-torch.log
index=()
[ -z "${PROBING_TORCH_INDEX:-}" ] || index=(--index-url "$PROBING_TORCH_INDEX")
get() { # VERSION
    timeout 1800 "$python" -m pip install -q "${index[@]}" "torch==$1" numpy setuptools >>"$log" 2>&1 </dev/null
}
any() {
    [ "${PROBING_TORCH_ANY:-}" = 1 ] || return
    echo "torch: pip got no CPU build, so the one with GPU libraries is fetched, some GB (PROBING_TORCH_INDEX: the CPU index)" >&2
    get $version
}
rm -rf "$venv"
if "$base" -m venv "$venv" >"$log" 2>&1 && { get $version+cpu || any; } &&
    "$python" -c 'import torch' >>"$log" 2>&1; then
    touch "$venv/.ready"
    echo "$python"
    exit 0
fi
rm -rf "$venv"
echo "pip's last words (all of them: $log):" >&2
grep . "$log" | tail -3 | cut -c1-300 >&2
echo "no torch $version: set PROBING_TORCH_INDEX to the CPU index, or PROBING_TORCH2 to a Python that has it" >&2
exit 1
