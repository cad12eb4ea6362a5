#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints the folder of speedscope's release (index.html, file-format-schema.json) for the tests that open our export in it:
# $PROBING_SPEEDSCOPE, else the one that npm installs once, if it can, in the user's cache.
#
#   .ci/speedscope.sh        if there is none: exit code 1, and the reason on stderr
set -u
cache=${XDG_CACHE_HOME:-$HOME/.cache}/probing
dir=${PROBING_SPEEDSCOPE:-$cache/speedscope/node_modules/speedscope/dist/release}
mkdir -p "$cache" || exit 1
exec 9>"$cache/speedscope.lock"
flock 9
if [ ! -e "$dir/file-format-schema.json" ] && [ -z "${PROBING_SPEEDSCOPE:-}" ]; then
    # Tests install nothing: tests/run.sh has already fetched what they may use.
    [ -z "${PROBING_NO_FETCH:-}" ] || { echo "no speedscope, and fetching it failed, or make test was not asked to" >&2; exit 1; }
    command -v npm >/dev/null || {
        echo "no npm; PROBING_SPEEDSCOPE=the folder dist/release of a speedscope" >&2
        exit 1
    }
    timeout 300 npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$cache/speedscope" speedscope@1 \
        >"$cache/speedscope.log" 2>&1 </dev/null
fi
if [ -e "$dir/file-format-schema.json" ]; then
    echo "$dir"
    exit 0
fi
echo "npm cannot get speedscope (its words: $cache/speedscope.log)" >&2
exit 1
