/* SPDX-License-Identifier: Apache-2.0 */
#include "record_summary.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "traces/visible.h"

static void put(char *line, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void put(char *line, size_t size, const char *fmt, ...) {
    size_t n = strlen(line);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line + n, size - n, fmt, ap);
    va_end(ap);
}

static void put_lost(char *line, size_t size, const struct record_output *o) {
    const char *sep = " (";
    uint64_t lost = 0;
    char text[TOOL_TEXT];

    for (unsigned i = 0; i <= TRACE_NLOST; i++)
        lost += o->lost[i];
    put(line, size, ", %s lost", tool_count(lost, text));
    for (unsigned i = 0; i <= TRACE_NLOST; i++) {
        if (!o->lost[i])
            continue;
        put(line, size, "%s%s %s", sep, i < TRACE_NLOST ? trace_lost_name(i) : "child",
            tool_count(o->lost[i], text));
        sep = ", ";
    }
    if (lost)
        put(line, size, ")");
}

void record_summary(const struct record_output *o, const struct run_result *r, const char *program,
                    unsigned unrecorded) {
    char line[4096] = "", text[TOOL_TEXT];
    size_t size = sizeof line;

    put(line, size, "%s", tool_duration((double)r->wall_ns / 1e9, text));
    if (r->signal)
        put(line, size, ", killed by signal %d (%s)", r->signal, strsignal(r->signal));
    if (*o->cause && r->signal && o->cause_pid == o->child)
        put(line, size, ", %s", o->cause);
    else if (*o->cause)
        put(line, size, ", process %d %s", o->cause_pid, o->cause);
    if (!o->processes && o->running) {
        put(line, size, "; still recording: process %s", o->running_text);
        tool_say("%s", line);
        return;
    }
    if (!o->processes && unrecorded) {
        put(line, size, ": nothing recorded");
        tool_say("%s", line);
        return;
    }
    if (!o->processes && o->full) {
        put(line, size, ": nothing recorded, %s could not be written: %s", o->name,
            strerror(ENOSPC));
        tool_say("%s", line);
        return;
    }
    if (!o->processes) {
        put(line, size,
            ": nothing recorded, no process of CPython was seen (is %s a program in Python, and not run "
            "by PyPy? setuid and statically linked ones, those of another user who cannot write "
            "where the trace is to be, and those that load a libpython before 3.8 themselves, "
            "are not seen; for a running one: probing -t PID inject)",
            program);
        tool_say("%s", line);
        return;
    }
    put(line, size, ", %u process%s", o->processes, o->processes == 1 ? "" : "es");
    if (o->exact) {
        put(line, size, ", %s samples", tool_count(o->samples, text));
        put_lost(line, size, o);
        if (o->children)
            put(line, size, ", %s forked child%s ended before %s recording began",
                tool_count(o->children, text), o->children == 1 ? "" : "ren",
                o->children == 1 ? "its" : "their");
    } else {
        put(line, size, ", %s records", tool_count(o->records, text));
    }
    put(line, size, ", %s in %s", tool_size(o->bytes, text), o->name);
    if (o->has_main && o->in_dir)
        put(line, size, " and %s.d", o->name);
    if (o->recovered)
        put(line, size, ", %u trace%s completed after the process had ended", o->recovered,
            o->recovered == 1 ? "" : "s");
    if (o->damaged)
        put(line, size, ", %u damaged", o->damaged);
    if (unrecorded)
        put(line, size, ", %u not recorded", unrecorded);
    if (o->running)
        put(line, size, "; still recording: process %s", o->running_text);
    char name[PATH_MAX + 32], quoted[4 * PATH_MAX + 32];
    snprintf(name, sizeof name, "%s%s%s", *o->name == '-' ? "./" : "", o->name,
             *o->main && !o->has_main ? ".d" : "");
    put(line, size, "; next: probing-convert %s out.db",
        visible_quoted(name, quoted, sizeof quoted));
    tool_say("%s", line);
}
