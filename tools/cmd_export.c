/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_export.c - `probing export`: traces as a Parquet data set. Here: the command line; Python does it, with pyarrow
 * (agent/python_api/probing/export.py).
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

static const char help[] =
    "usage: probing-export --parquet DIR [OPTION...] TRACE...|OUT.db\n"
    "\n"
    "Writes traces, or a database of them, as a Parquet data set, for DuckDB, Spark, ClickHouse, Polars\n"
    "and pandas: a folder for each table, by run and rank, sorted by time, and the views as scripts for\n"
    "these engines.\n"
    "A trace that is in DIR and has not grown is not written again.\n"
    "\n"
    "      --parquet DIR    the folder\n"
    "      --alone          the named files alone, without their .d directories\n"
    "      --json           print a summary as JSON on stdout\n"
    "  -q, --quiet          no summary line, no progress\n"
    "  -h, --help           this text\n"
    "      --version        print the version\n"
    "\n"
    "python3 (or PROBING_PYTHON) with pyarrow does it: pip install 'probing[parquet]', or pip install\n"
    "pyarrow. Exit code: 0; 1 a trace was damaged or could not be read, the rest is there; 2 usage; 3\n"
    "nothing could be written.\n"
    "\n"
    "  probing export --parquet run1 node*/\n"
    "  duckdb -init run1/views.duckdb.sql -c \"SELECT func, sum(seconds) FROM samples GROUP BY 1\"\n";

/* The folder that the command was started in may hold a `probing` of its own: it is not looked into. */
static const char code[] = "import sys; sys.path[0:1] = [sys.argv.pop(1)]; "
                           "import probing.export; sys.exit(probing.export.main(sys.argv[1:]))";

int cmd_export(int argc, char **argv) {
    enum { PARQUET = 256, ALONE, JSON };
    static const struct option options[] = {{"parquet", required_argument, NULL, PARQUET},
                                            {"alone", no_argument, NULL, ALONE},
                                            {"json", no_argument, NULL, JSON},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *python = getenv("PROBING_PYTHON"), *folder = NULL;
    char prefix[4096], path[4200];
    int c, alone = 0, json = 0, quiet = 0, n = 0;

    opterr = 0;
    while ((c = getopt_long(argc, argv, ":qh", options, NULL)) != -1) {
        switch (c) {
        case PARQUET:
            folder = optarg;
            break;
        case ALONE:
            alone = 1;
            break;
        case JSON:
            json = 1;
            break;
        case 'q':
            quiet = 1;
            break;
        case 'h':
            fputs(help, stdout);
            return TOOL_OK;
        default:
            return tool_bad_option(argv);
        }
    }
    if (!folder)
        return tool_usage("name the folder to write: --parquet DIR");
    if (optind == argc)
        return tool_usage("name the traces to write");
    if (tool_prefix(prefix, sizeof prefix) != 0)
        return tool_fail("cannot find its own parts");
    snprintf(path, sizeof path, "%s/share/probing/python", prefix);
    if (!python || !*python)
        python = "python3";
    const char **args = calloc((size_t)argc + 16, sizeof *args);
    if (!args)
        return tool_fail("cannot start %s: no memory", python);
    args[n++] = python;
    args[n++] = "-c";
    args[n++] = code;
    args[n++] = path;
    args[n++] = "--parquet";
    args[n++] = folder;
    if (alone)
        args[n++] = "--alone";
    if (json)
        args[n++] = "--json";
    if (quiet)
        args[n++] = "--quiet";
    args[n++] = "--";
    for (int i = optind; i < argc; i++)
        args[n++] = argv[i];
    setenv("PROBING", "0", 1); /* it is not to be recorded */
    execvp(python, (char *const *)args);
    int err = errno;
    free(args);
    return tool_fail("cannot run %s: %s (PROBING_PYTHON=a Python 3.8 or later with pyarrow)",
                     python, strerror(err));
}
