#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make demo: records half a minute of a real training run, converts it, queries it in
# SQL, and draws a flame graph.
#
#   .ci/demo.sh BUILD SECONDS        $PYTHON: the interpreter; without it, one that has PyTorch is searched for
set -eu
build=$1
seconds=$2
cd "$(dirname "$0")/.."
python=$(.ci/torch-python || .ci/torch-python --any) || {
    echo "demo: no Python with PyTorch at hand: make deps installs python3-torch, or give one: make demo PYTHON=..." >&2
    exit 3
}
bin=$build/bin
out=$build/demo
rm -rf "$out"
mkdir -p "$out"
db=$out/out.db

title() { printf '\n\033[1m%s\033[0m\n' "$1"; }
[ -t 1 ] || title() { printf '\n%s\n' "$1"; }
show() { printf '  $ %s\n' "$*"; "$@"; }
ask() { "$bin/probing" query "$db" "$1"; }

title "1. Record: a small transformer trains for $seconds s, with two loader processes; 100 samples a second"
show "$bin/probing-record" -r 100 -o "$out/trace.zst" -- "$python" tests/demo/train.py --seconds "$seconds"

title "2. Convert: one database from the three processes"
show "$bin/probing-convert" "$out/trace.zst" "$db"

title "3. Where does the time go? By Python function: inside it and what it called natively, and in all"
ask "
WITH inner AS (
  SELECT sample_id, func, file, min(depth) FROM backtrace WHERE frame_type = 'Python' GROUP BY sample_id
), own AS (
  SELECT i.func, i.file, sum(s.seconds) AS seconds, sum(s.seconds * (s.state = 'running')) AS running
  FROM inner i JOIN samples s ON s.sample_id = i.sample_id GROUP BY i.func, i.file
)
SELECT h.func AS function, replace(h.file, rtrim(h.file, replace(h.file, '/', '')), '') AS file,
  round(o.seconds, 1) AS own_seconds, round(o.running, 1) AS of_it_running, round(h.total_seconds, 1) AS total_seconds
FROM hot_functions h JOIN own o ON o.func = h.func AND o.file = h.file
WHERE h.frame_type = 'Python' AND o.running >= 0.05
ORDER BY o.running DESC LIMIT 10"

title "4. How does memory grow? MB resident, by process"
ask "
WITH start AS (SELECT min(start) AS t0, pid AS main FROM trace)
SELECT CAST((timestamp - t0) / 3 AS INTEGER) * 3 AS second,
  round(max(CASE WHEN pid = main THEN memory_mb END), 1) AS training,
  round(max(CASE WHEN pid != main THEN memory_mb END), 1) AS largest_loader,
  count(DISTINCT pid) AS processes,
  substr('##################################################', 1, CAST(max(memory_mb) / 10 AS INTEGER)) AS largest
FROM memory_usage, start GROUP BY second ORDER BY second"

title "5. What did each thread do? Running or waiting, and where it was most often"
ask "
WITH spot AS (
  SELECT pid, tid, func, count(*) AS n, row_number() OVER (PARTITION BY pid, tid ORDER BY count(*) DESC) AS place
  FROM (SELECT pid, tid, sample_id, func, min(depth) FROM backtrace WHERE frame_type = 'Python' GROUP BY sample_id)
  GROUP BY pid, tid, func
)
SELECT h.pid, h.tid, h.name AS thread, round(sum(s.seconds), 1) AS seconds,
  round(100 * sum(s.seconds * (s.state = 'running')) / sum(s.seconds)) AS running_percent,
  round(max(h.cpu_seconds), 1) AS cpu_seconds, p.func AS most_often_in
FROM threads h JOIN samples s ON s.pid = h.pid AND s.tid = h.tid
LEFT JOIN spot p ON p.pid = h.pid AND p.tid = h.tid AND p.place = 1
GROUP BY h.pid, h.tid ORDER BY h.pid, seconds DESC"

title "6. What is a step of training made of? Its phases, and the modules that cost most"
ask "
SELECT count(*) AS steps, round(1e3 * avg(duration), 2) AS ms_a_step, round(1e3 * avg(data), 2) AS waiting_for_data,
  round(1e3 * avg(forward), 2) AS forward, round(1e3 * avg(backward), 2) AS backward,
  round(1e3 * avg(optimizer), 2) AS optimizer, round(1e3 * avg(other), 2) AS other
FROM steps WHERE step > 0 AND complete"
ask "
SELECT module, type, sum(calls) AS calls, round(sum(self_seconds) FILTER (WHERE stage = 'forward'), 2) AS forward_seconds,
  round(sum(self_seconds) FILTER (WHERE stage = 'backward'), 2) AS backward_seconds
FROM torch_modules GROUP BY module, type ORDER BY sum(self_seconds) DESC LIMIT 8"

title "7. The same as a picture: what ran, Python and native"
show "$bin/probing" flamegraph --cpu -o "$out/flame.svg" "$db"

cat <<END

Open $out/flame.svg in a browser (click to zoom, search in the corner). Now it is your turn:

  PATH=$(cd "$bin" && pwd):\$PATH
  probing query $db "SELECT func, file, self, seconds FROM hot_functions LIMIT 10"
  sqlite3 $db "SELECT * FROM trace"
  probing-record python train.py              # record your own; then probing-convert trace.zst out.db
  gdb -ix $build/share/probing/gdb/probing.py -p PID -ex "probing inject"      # or one that runs already
END
