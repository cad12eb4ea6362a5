#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Pythons that this system does not have: 3.14, 3.15 and debug builds, from Debian sid. For `make test-all`.
#
#   .ci/sid-pythons.sh DIR           makes DIR, if it is not there yet, and prints the interpreters, one a line
#   .ci/sid-pythons.sh --list DIR    only prints what is there
#
# DIR is a small Debian sid (debootstrap). DIR/usr/outside/ has copies of its interpreters that run outside of any chroot,
# with the ld.so and the libraries of DIR and the file system of the caller. It also has, though they are not printed,
# debug builds (python3.14d) and shared ones (python3.14-shared, a few lines of C that use libpython3.14.so).
#
# Exit code 0; or 3 if this is impossible here: DIR/why-not, and one line on stderr, say why.
set -u

packages=(python3.13 python3.13-dbg)
for version in 3.14 3.15; do
    packages+=("python$version" "python$version-dev" "python$version-dbg" "libpython$version")
done

list() {
    local name
    for name in python3.14 python3.15; do
        [ -x "$1/usr/outside/$name" ] && echo "$1/usr/outside/$name"
    done
    return 0
}

if [ "${1:-}" = --list ]; then
    list "$2"
    exit 0
fi
[ $# -eq 1 ] || { echo "usage: .ci/sid-pythons.sh [--list] DIR" >&2; exit 2; }
mkdir -p "$1" || exit 3
dir=$(cd "$1" && pwd) || exit 3
[ -e "$dir/complete" ] && { list "$dir"; exit 0; }

fail() {
    echo "$*" >"$dir/why-not"
    echo "sid-pythons: $*" >&2
    exit 3
}

[ "$(uname -m)" = x86_64 ] || fail "only for x86-64"
[ "$(id -u)" = 0 ] || fail "debootstrap needs root"
for tool in debootstrap patchelf; do
    command -v $tool >/dev/null || fail "$tool is not installed (make deps test-all would, where apt has it)"
done
exec 9>"$dir/lock"
flock 9 || fail "another one is at work"
[ -e "$dir/complete" ] && { list "$dir"; exit 0; }

# The mirror of this system's own Debian packages also has sid. Other systems use debootstrap's default.
# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    awk '$1 == "Debian" && $NF !~ /security/ { print $NF; exit }')
if [ ! -x "$dir/usr/bin/dpkg" ] || [ -d "$dir/debootstrap" ]; then
    debootstrap --variant=minbase sid "$dir" ${mirror:+"$mirror"} >"$dir/log" 2>&1 ||
        fail "debootstrap could not make it: $(tail -1 "$dir/log")"
fi
printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d" # no service is started in there
chmod +x "$dir/usr/sbin/policy-rc.d"

inside() { env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 chroot "$dir" "$@" </dev/null >>"$dir/log" 2>&1; }
# A mirror may lag behind, and so may this machine's clock.
inside apt-get -q -y -o Acquire::Check-Valid-Until=false update || fail "apt-get update failed in it: $(tail -1 "$dir/log")"
for package in "${packages[@]}"; do # each alone, so that one that sid does not have any more does not prevent the others
    inside apt-cache show "$package" && have+=("$package")
done
inside apt-get -q -y install --no-install-recommends "${have[@]}" ||
    fail "apt-get could not install them: $(tail -1 "$dir/log")"

# An interpreter finds its library relative to its own place: .../usr/outside is beside usr/lib.
lib=/lib/x86_64-linux-gnu
outside() { # FILE: its own ld.so and libraries, wherever it runs
    patchelf --set-interpreter "$dir/lib64/ld-linux-x86-64.so.2" --force-rpath \
        --set-rpath "$dir/usr$lib:$dir$lib" "$1" || fail "patchelf could not change $1"
}
mkdir -p "$dir/usr/outside"
for python in "$dir"/usr/bin/python3.1[0-9] "$dir"/usr/bin/python3.1[0-9]d; do
    [ -f "$python" ] || continue
    cp "$python" "$dir/usr/outside/" && outside "$dir/usr/outside/${python##*/}"
done
for version in 3.14 3.15; do
    library=$dir/usr$lib/libpython$version.so
    [ -e "$library" ] || continue
    echo 'int Py_BytesMain(int, char **); int main(int n, char **v) { return Py_BytesMain(n, v); }' |
        cc -xc - -xnone -o "$dir/usr/outside/python$version-shared" "$library" -Wl,--unresolved-symbols=ignore-all ||
        fail "cannot link against $library"
    outside "$dir/usr/outside/python$version-shared"
done
rm -f "$dir/why-not"
: >"$dir/complete"
list "$dir"
