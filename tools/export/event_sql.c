/* SPDX-License-Identifier: Apache-2.0 */
#include "event_sql.h"

#include <sqlite3.h>
#include <stddef.h>

#include "export.h"

#define FROM(table)                                                                                \
    " FROM temp.export_trace e CROSS JOIN trace_file t ON t.id = e.id CROSS JOIN " table           \
    " c ON c.id BETWEEN t.first_id AND t.last_id"
#define TIMES " WHERE c.ts BETWEEN :from AND :to AND (:only IS NULL OR e.process = :only)"
#define THREAD                                                                                     \
    EXPORT_THREAD("(SELECT h.id FROM thread h WHERE h.trace = t.id AND h.tid = c.tid LIMIT 1)")
#define CALLER  EXPORT_THREAD("t.first_id + c.thread")
#define NO_FLOW ", NULL, NULL, NULL, 0"

static const struct {
    enum export_kind kind;
    const char *sql;
} slices[] = {
    {EXPORT_STEP,
     "SELECT e.process, NULL, c.ts, c.duration, CASE c.source WHEN 3 THEN 'evaluation' ELSE 'step ' || c.number END,"
     " CASE c.source WHEN 3 THEN 'evaluation' ELSE 'step' END, 'steps'" NO_FLOW
     ", CASE WHEN c.source < 3 THEN c.number END AS step, c.forward / 1e9 AS forward_s, c.backward / 1e9 AS backward_s,"
     " c.optimizer / 1e9 AS optimizer_s, c.data / 1e9 AS data_s" FROM("torch_step") TIMES
     " ORDER BY e.process, c.ts, c.duration DESC"},
    {EXPORT_CALL,
     "SELECT e.process, " CALLER ", c.ts, c.duration,"
     " CASE c.stage WHEN 0 THEN m.name WHEN 1 THEN m.name WHEN 2 THEN 'backward pass' WHEN 3 THEN 'optimizer' ELSE 'data' END,"
     " CASE c.stage WHEN 0 THEN 'forward' WHEN 1 THEN 'backward' WHEN 2 THEN 'backward pass' WHEN 3 THEN 'optimizer' ELSE 'data' END,"
     " 'modules'" NO_FLOW
     ", c.step, m.type, CASE WHEN c.flags & 1 THEN 1 END AS failed, CASE WHEN c.flags & 2 THEN 1 END AS recomputed,"
     " g.duration / 1e6 AS cuda_ms" FROM(
         "torch_call") " LEFT JOIN torch_module m ON m.id = t.first_id + c.module"
                       " LEFT JOIN torch_cuda g ON g.thread = t.first_id + c.thread AND g.call = c.call AND g.stage = c.stage AND g.ts = c.ts" TIMES
                       " ORDER BY e.process, c.ts, coalesce(c.duration, 1 << 62) DESC, c.depth"},
    /* Calls with the same group, name and number are one collective; those with the same group, number and two ranks are one message. */
    {EXPORT_COLLECTIVE,
     "SELECT trace, thread, ts, duration, op, 'collective', 'collectives ' || coalesce(\"group\", pg), NULL, NULL,"
     " CASE WHEN ends > 1 THEN key END, CASE nth WHEN 1 THEN 1 WHEN ends THEN 3 ELSE 2 END, \"group\", seq, bytes, dtype, group_size,"
     " src, dst, host_ms, completion FROM ("
     "SELECT *, count(*) OVER w AS ends, row_number() OVER (w ORDER BY ts ROWS UNBOUNDED PRECEDING) AS nth FROM ("
     "SELECT e.process AS trace, " THREAD
     " AS thread, c.ts, CASE WHEN c.flags & 1 THEN NULL ELSE c.duration END AS duration, c.op,"
     " coalesce(g.name, 'group ' || c.pg) AS \"group\", c.pg, c.seq, c.bytes, c.dtype, g.size AS group_size,"
     " coalesce(s.rank, c.src) AS src, coalesce(d.rank, c.dst) AS dst, c.host / 1e6 AS host_ms,"
     " CASE WHEN c.flags & 1 THEN 'none' WHEN c.flags & 4 THEN 'raised' WHEN c.flags & 8 THEN 'failed' WHEN c.flags & 2 THEN 'call' ELSE 'seen' END AS completion,"
     " coalesce(t.run, '') || '/' || coalesce(g.name, c.pg) || '/' || CASE WHEN c.op NOT IN ('send', 'recv') THEN c.op"
     " ELSE coalesce(c.src, CASE c.op WHEN 'send' THEN g.rank END, '?' || c.id) || '>' ||"
     " coalesce(c.dst, CASE c.op WHEN 'recv' THEN g.rank END, '?' || c.id) END || '/' || coalesce(c.seq, '?' || c.id) AS key" FROM(
         "comm") " LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg"
                 " LEFT JOIN group_rank s ON s.list = g.list AND s.idx = c.src LEFT JOIN group_rank d ON d.list = g.list AND d.idx = c.dst" TIMES
                 ") WINDOW w AS (PARTITION BY key)) ORDER BY trace, ts, duration DESC"},
    {EXPORT_SPAN, "SELECT e.process, " THREAD ", c.ts, z.ts - c.ts, c.name, 'span', 'spans'" NO_FLOW
                  ", CASE WHEN z.flags & 1 THEN 1 END AS failed" FROM(
                      "span") " LEFT JOIN span_end z ON z.id = c.id" TIMES
                              " ORDER BY e.process, c.ts, coalesce(z.ts, 1 << 62) DESC, c.id"},
    {EXPORT_MARK,
     "SELECT e.process, " THREAD ", c.ts, 0, c.name, 'event', 'marks'" NO_FLOW ", c.step,"
     " (SELECT json_group_object(coalesce(k.key, ''), CASE k.value WHEN 1e999 THEN 'inf' WHEN -1e999 THEN '-inf' ELSE k.value END)"
     " FROM event_value k WHERE k.event = c.id) AS data" FROM("event") TIMES
     " ORDER BY e.process, c.ts"},
    {EXPORT_MARK, "SELECT e.process, " THREAD ", c.ts, 0, c.kind, 'trigger', 'marks'" NO_FLOW
                  ", nullif(c.step, -1) AS step, c.detail, c.text" FROM("trigger_event") TIMES
     " ORDER BY e.process, c.ts"},
};

/* Counters: name (SQL), unit, value (SQL), table. by: NULL, or what else than the process partitions the window w, which gives the row before. */
#define RATE(column)                                                                               \
    "(c." column " - lag(c." column ") OVER w) / (nullif(c.ts - lag(c.ts) OVER w, 0) / 1e9)"
static const struct {
    const char *name, *unit, *value, *table, *by;
} counters[] = {
    {"'memory rss'", "bytes", "c.rss", "memory_sample", NULL},
    {"'cpu'", "percent",
     "(c.user_us + c.system_us - lag(c.user_us + c.system_us) OVER w) * 1e5 / nullif(c.ts - lag(c.ts) OVER w, 0)",
     "cpu", ""},
    {"'threads'", "", "c.threads", "cpu", NULL},
    {"'storage read'", "bytes/s", RATE("read_bytes"), "io", ""},
    {"'storage written'", "bytes/s", RATE("write_bytes"), "io", ""},
    {"'network received ' || c.interface", "bytes/s", RATE("rx_bytes"), "network", ", c.interface"},
    {"'network sent ' || c.interface", "bytes/s", RATE("tx_bytes"), "network", ", c.interface"},
    {"'gpu memory of torch'", "bytes", "c.gpu_allocated", "memory_step", NULL},
    {"'gpu ' || c.device || ' util'", "percent", "c.util", "gpu", NULL},
    {"'gpu ' || c.device || ' memory'", "bytes", "c.memory_used", "gpu", NULL},
    {"'gpu ' || c.device || ' power'", "W", "c.power_mw / 1e3", "gpu", NULL},
    {"'variable ' || c.name || '@' || c.func", "",
     "CASE WHEN typeof(c.value) <> 'text' THEN c.value END", "variable", NULL},
};

char *event_sql(unsigned i, enum export_kind *kind) {
    const unsigned n = sizeof slices / sizeof *slices;

    if (i < n) {
        *kind = slices[i].kind;
        return sqlite3_mprintf("%s", slices[i].sql);
    }
    i -= n;
    *kind = EXPORT_COUNTER;
    return i < sizeof counters / sizeof *counters
               ? sqlite3_mprintf(
                     "SELECT e.process, NULL, c.ts, 0, NULL, 'counter', %s, %Q, %s, NULL, 0" FROM(
                         "%s") TIMES "%s%s%s ORDER BY e.process, c.ts",
                     counters[i].name, counters[i].unit, counters[i].value, counters[i].table,
                     counters[i].by ? " WINDOW w AS (PARTITION BY e.process" : "",
                     counters[i].by ? counters[i].by : "", counters[i].by ? " ORDER BY c.ts)" : "")
               : NULL;
}
