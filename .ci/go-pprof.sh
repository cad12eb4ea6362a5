#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints the path of a pprof that reads profile.pb.gz: $PROBING_PPROF, `pprof`, or that of an installed Go; else that of Debian's golang,
# which is extracted from its package once, if apt has it (60 MB), and kept in the user's cache.
#
#   .ci/go-pprof.sh        if there is none: exit code 1, and the reason on stderr
set -u
[ -z "${PROBING_PPROF:-}" ] || { echo "$PROBING_PPROF"; exit 0; }
command -v pprof && exit 0
if command -v go >/dev/null; then
    tool=$(go tool -n pprof 2>/dev/null) && [ -x "$tool" ] && { echo "$tool"; exit 0; }
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/probing
mkdir -p "$cache" || exit 1
exec 9>"$cache/pprof.lock"
flock 9
[ -x "$cache/pprof" ] && { echo "$cache/pprof"; exit 0; }
# Tests install nothing: tests/run.sh has already fetched what they may use.
[ -z "${PROBING_NO_FETCH:-}" ] || { echo "no pprof, and fetching it failed, or make test was not asked to" >&2; exit 1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
package=$(apt-cache depends golang-go 2>/dev/null | sed -n 's/.*Depends: \(golang-[0-9.]*-go\)$/\1/p' | head -1)
if [ -n "$package" ] && (cd "$work" && timeout 300 apt-get download -q "$package") >/dev/null 2>&1 &&
    dpkg --fsys-tarfile "$work/$package"_*.deb | tar -x -C "$work" --wildcards '*/pkg/tool/*/pprof' 2>/dev/null &&
    cp "$work"/usr/lib/go-*/pkg/tool/*/pprof "$cache/pprof.new" && mv "$cache/pprof.new" "$cache/pprof"; then
    echo "$cache/pprof"
    exit 0
fi
echo "no Go, and apt cannot get Debian's (golang-go); PROBING_PPROF=pprof of another" >&2
exit 1
