#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of a built tree. The last lines are the runners' own summaries.
#
#   tests/run.sh BUILD unit|e2e|all ... [pytest's arguments]
#
#   unit   each cmocka program: prints its summary, or all of its output if it failed
#   e2e    pytest for tests/e2e without the slow tests
#   all    pytest for tests/e2e with the slow tests, and with more Pythons
#
# Exit code 0 if everything passed.
set -u
build=$(cd "$1" && pwd) || exit 2
shift
cd "$(dirname "$0")/.." || exit 2
failed=0
unset MAKEFLAGS MAKELEVEL MFLAGS

run_parallel() { # programs, one a line: writes the output and exit code of each into files beside it
    # shellcheck disable=SC2016
    xargs -P "$(nproc)" -I{} sh -c 'timeout -k 5 1200 "$1" >"$1.out" 2>&1 </dev/null; echo $? >"$1.rc"' - {}
}

unit() {
    local log=$build/tests/unit.log bad=0 count=0 rc name out
    mkdir -p "$build/tests/unit"
    rm -f "$build"/tests/unit/*.{out,rc}
    : >"$log"
    for source in tests/unit/test_*.c; do
        name=${source##*/}
        [ ! -x "$build/tests/unit/${name%.c}" ] || echo "$build/tests/unit/${name%.c}"
    done | run_parallel
    for source in tests/unit/test_*.c; do
        name=${source##*/}
        name=${name%.c}
        out=$build/tests/unit/$name.out
        [ -e "$out" ] || { echo "$name: not built" >&2; bad=$((bad + 1)); continue; }
        count=$((count + 1))
        rc=$(cat "$build/tests/unit/$name.rc")
        echo "== $name (exit code $rc)" >>"$log"
        cat "$out" >>"$log"
        if [ "$rc" = 0 ]; then
            printf '  %-7s %-24s %s\n' UNIT "$name" "$(grep -E '^\[  (PASSED|SKIPPED) ' "$out" | tr '\n' ' ')"
        else
            bad=$((bad + 1))
            printf '  %-7s %-24s exit code %s\n' FAILED "$name" "$rc"
            cat "$out"
        fi
    done
    [ $bad -eq 0 ] || failed=1
    printf '  %-7s %d programs, %d tests, %d programs failed (all they said: %s)\n' UNIT $count \
        "$(sed -n 's/^\[==========\].* \([0-9]*\) test(s) run\..*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')" \
        $bad "$log"
}

# Fetches what tests use, if possible, once for all tests; a test that lacks it is skipped and says so.
fetch() {
    local script
    for script in "$@"; do
        ".ci/$script" >/dev/null 2>&1 </dev/null &
    done
    wait
}

e2e() {
    local python workers mark=("$@") where=${PROBING_E2E:-tests/e2e}
    rm -rf "$build/tests/pytest-cache"
    python=$(.ci/pytest-python) || { failed=1; return; }
    # With pytest-xdist (python3-pytest-xdist), runs two tests more at a time than there are processors (at most 8), because most tests wait for something:
    # with one more, an eighth of the processors' time was unused. Tests of one file run one after the other, because they share recordings.
    # ARGS='-n 0' runs one test at a time.
    workers=$(($(nproc) < 7 ? $(nproc) + 2 : 8))
    ! "$python" -c 'import xdist' 2>/dev/null || mark=(-n "$workers" --dist loadfile "${mark[@]}")
    PROBING_BUILD=$build "$python" -m pytest -q -rs -o cache_dir="$build/tests/pytest-cache" "${mark[@]}" "$where" \
        </dev/null || failed=1
}

while [ $# -gt 0 ]; do
    what=$1
    shift
    case $what in
    unit) unit ;;
    e2e)
        fetch torch-venv.sh engines-venv.sh go-pprof.sh speedscope.sh
        e2e -m 'not slow' "$@"
        break
        ;;
    all) # with the Pythons of Debian sid, if they can be installed; else a test says why not
        PROBING_SID=$build/sid
        [ -n "${PROBING_PYTHONS:-}" ] || PROBING_PYTHONS=$(.ci/sid-pythons.sh "$PROBING_SID" | tr '\n' ' ')
        export PROBING_PYTHONS PROBING_SID
        PROBING_ENGINES_ALL=1 fetch torch-venv.sh engines-venv.sh go-pprof.sh speedscope.sh
        .ci/sid-torch.sh "$PROBING_SID" >/dev/null 2>&1 </dev/null
        e2e "$@"
        break
        ;;
    *)
        echo "usage: tests/run.sh BUILD unit|e2e|all ..." >&2
        exit 2
        ;;
    esac
done
exit $failed
