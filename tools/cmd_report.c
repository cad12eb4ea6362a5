/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_report.c - `probing report`: writes a recording as one page for a browser (report.h). */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "live_target.h"
#include "new_file.h"
#include "open_db.h"
#include "options.h"
#include "report.h"
#include "running.h"
#include "target.h"

static const char help[] =
    "usage: probing report [OPTION...] DB|TRACE...|PID\n"
    "\n"
    "Writes one page for a browser: what is slow and who is to blame, steps, ranks, collectives, modules,\n"
    "stacks, memory, GPU, variables, and what was lost. It needs no network; each picture has the SQL\n"
    "behind it one click away.\n"
    "\n"
    "  -o, --output FILE   write to FILE; - is standard output (default)\n"
    "      --title TEXT    title of the page (default: the recorded command)\n"
    "      --timeout S     give up a result after S seconds of the processor, and say so (default: 8)\n"
    "      --no-cache      convert traces anew, and keep nothing\n"
    "  -h, --help          this text\n"
    "      --version       print the version\n"
    "\n"
    "Exit code: 0; 1 a damaged trace was read in part; 2 usage; 3 nothing could be read or written.\n"
    "\n"
    "  probing report -o report.html out.db\n";

struct request {
    struct report report;
    const char *output;
    int flags;
};

static int parse(int argc, char **argv, struct request *r) {
    const struct tool_option options[] = {OPTION_CALL("output", 'o', option_output, &r->output),
                                          OPTION_TEXT("title", 0, &r->report.title),
                                          OPTION_TIMEOUT(&r->report.timeout),
                                          OPTION_BITS("no-cache", 0, &r->flags, DB_NO_CACHE),
                                          {0}};
    int rc = tool_options(argc, argv, help, options);

    if (rc == TOOL_OK && optind == argc)
        rc = tool_usage("a database, a trace or a process that is recorded is needed");
    return rc;
}

static int write_page(void *ctx, FILE *out) {
    return report_write(ctx, out);
}

int cmd_report(int argc, char **argv) {
    struct request r = {.report = {.timeout = 8}};
    static char trace[LIVE_PATH];
    char *live[1] = {trace};
    int rc, code, pid;

    if ((rc = parse(argc, argv, &r)) != TOOL_OK)
        return rc;
    argv += optind;
    argc -= optind;
    if (!r.output && isatty(STDOUT_FILENO))
        return tool_usage("a page is not for the terminal: give -o FILE.html");
    if (r.output && (rc = new_file_allowed(r.output, OUTPUT_REPORT, argv, argc)) != TOOL_OK)
        return rc;
    if (argc == 1 && !argv[0][strspn(argv[0], "0123456789")] && !db_exists(argv[0])) {
        if ((code = target_pid(argv[0], &pid)) != TOOL_OK ||
            (code = live_trace(pid, trace)) != TOOL_OK)
            return code;
        argv = live;
    }
    code = db_open(&r.report.db, argv, argc, r.flags);
    if (!r.report.db)
        return code;
    if (sqlite3_table_column_metadata(r.report.db, "main", "trace_file", NULL, NULL, NULL, NULL,
                                      NULL, NULL) != SQLITE_OK) {
        sqlite3_close(r.report.db);
        return tool_fail("%s is a database, but not one of probing-convert", argv[0]);
    }
    running_note(r.report.db);
    rc = r.output ? new_file(r.output, write_page, &r.report) : report_write(&r.report, stdout);
    if (rc < 0 && ferror(stdout))
        code = TOOL_FAILED; /* tool_end() reports it */
    else if (rc < 0)
        code = tool_fail("cannot write %s: %s", r.output ? r.output : "the page", strerror(-rc));
    else if (r.report.damaged && code == TOOL_OK) {
        tool_say("%s is damaged: the page has what could still be read", argv[0]);
        code = TOOL_PARTIAL;
    }
    sqlite3_close(r.report.db);
    return code;
}
