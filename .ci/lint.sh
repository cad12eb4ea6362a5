#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make lint: all checks of the sources that do not run the product. Prints one line for each step, and the
# output of failed steps. BUILD: a folder for its own build trees.
#
# GCC_BUILD: a tree that gcc has built with WERROR=1 already, as .ci/run has: the steps gcc and names use that.
#
#   .ci/lint.sh BUILD [STEP ...]      steps: arrows schema gcc names clang asan tsan cppcheck shellcheck pyflakes format
set -u
cd "$(dirname "$0")/.." || exit 2
build=$1
shift
mkdir -p "$build" || exit 2
unset MAKEFLAGS MAKELEVEL MFLAGS
export WERROR=1
jobs=-j$(nproc)
gcc=${GCC_BUILD:-$build/gcc}
failed=()

mapfile -t SCRIPTS < <({ git ls-files -co --exclude-standard '*.sh'; grep -lE '^#!.*(ba)?sh' .ci/* tests/*; } 2>/dev/null | sort -u)
mapfile -t PYTHON_FILES < <(git ls-files -co --exclude-standard '*.py' | sort -u)
mapfile -t C_FILES < <(git ls-files -co --exclude-standard '*.c' '*.h' | sort -u)

step() { # NAME COMMAND...
    local name=$1 log=$build/$1.log start=$SECONDS
    shift
    if "$@" >"$log" 2>&1 </dev/null; then
        printf '  %-7s %-12s ok (%d s)\n' LINT "$name" $((SECONDS - start))
    else
        printf '  %-7s %-12s FAILED\n' LINT "$name"
        grep -vE '^  (CC|LD|AR|GEN|UNIT) ' "$log" | tail -60
        failed+=("$name")
    fi
}

# Folders include each other as ARCHITECTURE.md draws it, files do not include each other in a circle, and examples in headers fit the declarations.
do_arrows() { python3 .ci/arrows.py && python3 .ci/examples.py; }
# converter/SCHEMA.md explains each view and column.
do_schema() { python3 .ci/schema-md.py --check; }
do_gcc() { make "$jobs" O="$gcc" CC=gcc all; }
# The optimisation level differs from that of gcc, because it influences the warnings.
do_clang() { make "$jobs" O="$build/clang" CC=clang CFLAGS=-O0 all; }

do_asan() {
    ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
        make "$jobs" O="$build/asan" SAN=1 CFLAGS=-O1 unit
}

# The tests of memory that several threads and signal handlers use at the same time without a lock.
do_tsan() {
    local test bad=0
    for test in tests/unit/test_ring*.c tests/unit/test_quiesce.c tests/unit/test_recorders.c; do
        test=$build/tsan/${test%.c}
        make "$jobs" O="$build/tsan" SAN=thread CFLAGS=-O1 "$test" &&
            TSAN_OPTIONS=halt_on_error=1 timeout -k 5 300 "$test" || bad=1
    done
    return $bad
}

do_cppcheck() {
    cppcheck -q "$jobs" --std=c11 --enable=warning,performance,portability --inline-suppr \
        --suppressions-list=.ci/cppcheck.txt --error-exitcode=1 --template=gcc \
        -D_GNU_SOURCE -D__x86_64__ -D__linux__ -DPROBING_VERSION='"0"' -I. \
        traces writer agent converter gdbplugin tools
}

do_shellcheck() { shellcheck "${SCRIPTS[@]}"; }

# pyflakes cannot be told that a name is imported on purpose, as pytest's fixtures are: lines marked "# noqa" are ignored here.
do_pyflakes() {
    local line file number bad=0
    while read -r line; do
        file=${line%%:*}
        number=${line##*from line }
        [ "$number" != "$line" ] || { number=${line#*:} && number=${number%%:*}; }
        if ! sed -n "${number}p" "$file" | grep -q '# noqa'; then
            echo "$line"
            bad=1
        fi
    done < <(pyflakes3 "${PYTHON_FILES[@]}" 2>&1)
    return $bad
}

# If two folders use one name for two functions, programs would be linked without an error.
do_names() {
    make "$jobs" O="$gcc" CC=gcc libs >/dev/null || return 1
    local double
    double=$(for lib in "$gcc"/obj/lib*.a; do
        nm -g --defined-only "$lib" 2>/dev/null | awk 'NF == 3 && $2 ~ /[TDBRC]/ { print $3 }'
    done | sort | uniq -d)
    [ -z "$double" ] || { echo "defined in two folders: $double" && return 1; }
}

do_format() {
    local tool=clang-format
    # The style is that of the version in Debian 12; others differ in details.
    command -v clang-format-14 >/dev/null && tool=clang-format-14
    $tool --dry-run -Werror "${C_FILES[@]}"
}

[ $# -gt 0 ] || set -- arrows schema gcc names clang asan tsan cppcheck shellcheck pyflakes format
for name in "$@"; do
    step "$name" "do_$name"
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "lint: failed: ${failed[*]} (all they said: $build/STEP.log)"
    exit 1
fi
echo "lint: all $# steps passed"
