#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints the path of a Python with libraries that read Arrow and Parquet (pyarrow, pandas, Polars, DuckDB, nanoarrow, fsspec), and schemas (jsonschema), for the tests
# that need them: $PROBING_ENGINES, or else a virtual environment in the user's cache, which is made once if pip can do it. If Java is
# installed, it gets pyspark, too (some 450 MB); with PROBING_ENGINES_ALL=1 (make test-all) also chdb, moto, Datasette and the classes of
# Perfetto's and OTLP's messages. A test that lacks one of them is skipped and says so.
#
#   .ci/engines-venv.sh        if there is none: exit code 1, and the reason on stderr
set -u
if [ -n "${PROBING_ENGINES:-}" ]; then
    "$PROBING_ENGINES" -c 'import pyarrow' 2>/dev/null && echo "$PROBING_ENGINES" && exit 0
    echo "PROBING_ENGINES=$PROBING_ENGINES cannot import pyarrow" >&2
    exit 1
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/probing
venv=$cache/venv-engines
python=$venv/bin/python
mkdir -p "$cache" || exit 1
exec 9>"$cache/venv-engines.lock"
flock 9
want="pyarrow pandas polars duckdb nanoarrow fsspec aiohttp jsonschema"
command -v java >/dev/null && want="$want pyspark"
last=opentelemetry-proto # what only one with all has: it serves for less, too
[ "${PROBING_ENGINES_ALL:-}" != 1 ] || { want="$want chdb moto[server,s3] s3fs schemathesis perfetto opentelemetry-proto HolisticTraceAnalysis datasette" last=datasette; }
if [ -e "$venv/.ready" ] && [ "$(cat "$venv/.ready")" = "$want" ] || { [ -e "$venv/.ready" ] && grep -q "$last" "$venv/.ready"; }; then
    echo "$python"
    exit 0
fi
# Tests install nothing: tests/run.sh has already fetched what they may use.
[ -z "${PROBING_NO_FETCH:-}" ] || { echo "no virtual environment with $want, and fetching it failed, or make test was not asked to" >&2; exit 1; }
base=
for p in python3.12 python3.11 python3.13 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[1-3].*/bin/python3; do
    if path=$(command -v "$p") && "$path" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        base=$path
        break
    fi
done
[ -n "$base" ] || {
    echo "no Python from 3.10 on that can make virtual environments" >&2
    exit 1
}
log=$cache/venv-engines.log
# shellcheck disable=SC2086
if { [ -x "$python" ] || "$base" -m venv "$venv" >"$log" 2>&1; } &&
    timeout 900 "$python" -m pip install -q $want >>"$log" 2>&1 </dev/null; then
    echo "$want" >"$venv/.ready"
    echo "$python"
    exit 0
fi
echo "pip cannot get $want (its words: $log); PROBING_ENGINES=python that has them" >&2
exit 1
