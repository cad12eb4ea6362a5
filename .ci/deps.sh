#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing packages with apt; prints and does nothing if all are there.
#
#   .ci/deps.sh build|test|test-all|lint|demo ...       (`make deps` = build and test)
#
# demo: PyTorch, unless an installed interpreter has it (.ci/torch-python finds that).
# Root or sudo (which may ask for a password on a terminal) is needed only if something is missing. If neither
# is available, this prints the one command to run, and ends with 3.
set -u
cd "$(dirname "$0")/.." || exit 3

# package, and optionally a command or a header that also proves that it is installed
BUILD="
gcc                gcc
make               make
libc6-dev          stdio.h
python3-dev        -
libdw-dev          elfutils/libdwfl.h
libelf-dev         libelf.h
libsqlite3-dev     sqlite3.h
libzstd-dev        zstd.h
zlib1g-dev         zlib.h
libpcre2-dev       pcre2.h
libcjson-dev       cjson/cJSON.h
libedit-dev        histedit.h
libmicrohttpd-dev  microhttpd.h
libcurl4-openssl-dev curl/curl.h
gdb                gdb
"
TEST="
libcmocka-dev      cmocka.h
python3-pytest     -
sqlite3            sqlite3
zstd               zstd
strace             strace
gdbserver          gdbserver
binutils           readelf
tmux               tmux
"
LINT="
clang              clang
clang-format       clang-format
cppcheck           cppcheck
shellcheck         shellcheck
pyflakes3          pyflakes3
"
# Optional: without them tests are skipped. Not every system packages them.
TEST_OPTIONAL="
chromium           chromium
g++                g++
musl-tools         musl-gcc
python3-greenlet   -
python3-pytest-xdist -
python3-seccomp    -
"
# Optional: used by the commands that the demo suggests at its end.
DEMO_OPTIONAL="
sqlite3            sqlite3
"
# For `make test-all`: installs Pythons that this system does not have (.ci/sid-pythons.sh).
TEST_ALL_OPTIONAL="
debootstrap        debootstrap
patchelf           patchelf
python3-dbg        -
"

is_header() {
    case $1 in *.h) true ;; *) false ;; esac
}

installed() { # PACKAGE PROOF
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ] && return 0
    [ "$2" = - ] && return 1
    if is_header "$2"; then
        echo "#include <$2>" | cc -E -xc - >/dev/null 2>&1
    else
        command -v "$2" >/dev/null 2>&1
    fi
}

missing() { # LIST -> names
    while read -r package proof; do
        [ -z "$package" ] || installed "$package" "$proof" || echo "$package"
    done <<<"$1"
}

need=()
want=()
torch=
for group in "$@"; do
    case $group in
    build) mapfile -t -O ${#need[@]} need < <(missing "$BUILD") ;;
    test)
        mapfile -t -O ${#need[@]} need < <(missing "$TEST")
        mapfile -t -O ${#want[@]} want < <(missing "$TEST_OPTIONAL")
        .ci/torch-python >/dev/null || want+=(python3-torch)
        ;;
    test-all) mapfile -t -O ${#want[@]} want < <(missing "$TEST_ALL_OPTIONAL") ;;
    lint) mapfile -t -O ${#need[@]} need < <(missing "$LINT") ;;
    demo)
        mapfile -t -O ${#want[@]} want < <(missing "$DEMO_OPTIONAL")
        .ci/torch-python >/dev/null || torch=wanted
        ;;
    *)
        echo "usage: .ci/deps.sh build|test|test-all|lint|demo ..." >&2
        exit 2
        ;;
    esac
done
[ ${#need[@]} -eq 0 ] && [ ${#want[@]} -eq 0 ] && [ -z "$torch" ] && exit 0

as_root=()
can_install=yes
if ! command -v apt-get >/dev/null; then
    can_install=no
elif [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    elif command -v sudo >/dev/null && [ -t 0 ] && [ -t 2 ]; then
        as_root=(sudo) # it asks for the password, once
    else
        can_install=no
    fi
fi

log=$(mktemp) || exit 3
trap 'rm -f "$log"' EXIT

apt() { # apt-get, quietly, with the answers given
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 </dev/null
}

update() {
    printf '  %-7s %s\n' APT "reading the package lists"
    apt update
}

have_lists() {
    ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1
}

updated=no
if [ $can_install = yes ] && ! have_lists; then
    update && updated=yes
fi

offered() { # PACKAGE
    apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [0-9]'
}

offers_torch() { # that is recorded: .ci/torch-python
    dpkg --compare-versions "$(apt-cache policy python3-torch 2>/dev/null | awk '$1 == "Candidate:" && $2 ~ /^[0-9]/ { print $2 }')" ge 1.13 2>/dev/null
}

required=${#need[@]}
# Only those optional packages that this system really offers (on Ubuntu chromium is a snap).
for package in "${want[@]}"; do
    offered "$package" && need+=("$package")
done
# Not every system packages PyTorch (Ubuntu 24.04 does not, 22.04 has 1.8): then pip installs it in a virtual environment of its own.
if [ -n "$torch" ]; then
    if offers_torch; then
        need+=(python3-torch)
        torch=
        required=$((required + 1))
    elif ! python3 -c 'import ensurepip, venv' 2>/dev/null; then # a part of Python that Debian packages on its own
        need+=(python3-venv)
        required=$((required + 1))
    fi
fi

if [ $can_install = no ] && [ "$required" -gt 0 ]; then
    if command -v apt-get >/dev/null; then
        echo "deps: packages are missing, and installing them needs root. Run this, then make again:" >&2
        have_lists || echo "  sudo apt-get update" >&2
        echo "  sudo apt-get install -y --no-install-recommends ${need[*]}" >&2
    else
        echo "deps: this system has no apt-get. Install what Debian calls: ${need[*]}" >&2
    fi
    exit 3
fi
[ $can_install = yes ] || need=()

torch_by_pip() {
    [ -z "$torch" ] && return
    printf '  %-7s %s\n' PIP "PyTorch, into a virtual environment in the user's cache: some minutes"
    PROBING_TORCH_ANY=1 .ci/torch-venv.sh >/dev/null && return
    if .ci/torch-python --any >/dev/null || { offered python3-torch && apt install --no-install-recommends python3-torch; }; then
        echo "deps: apt's PyTorch is older than 1.13: its stacks are recorded, its modules and steps are not" >&2
        return
    fi
    echo "deps: for PyTorch, any interpreter will do: make demo PYTHON=path/of/python3 (pip install torch)" >&2
    exit 3
}
[ ${#need[@]} -eq 0 ] && torch_by_pip && exit 0

printf '  %-7s %s\n' APT "installing ${#need[@]} package(s): ${need[*]}"
if ! apt install --no-install-recommends "${need[@]}"; then
    # Outdated lists name files that the mirror does not have any more.
    if [ $updated = yes ] || ! update || ! apt install --no-install-recommends "${need[@]}"; then
        tail -15 "$log" >&2
        echo "deps: apt-get could not install: ${need[*]} (its last words are above)" >&2
        case " ${need[*]} " in
        *" python3-torch "*)
            echo "deps: for PyTorch, any interpreter will do: make demo PYTHON=path/of/python3 (pip install torch)" >&2
            ;;
        esac
        exit 3
    fi
fi
torch_by_pip
