/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common.h"

/* Replaces the current folder in sys.path by the installation's, as the current folder may hold another `probing`. */
static const char code[] = "import sys; sys.path[0:1] = [sys.argv.pop(1)]; "
                           "import probing.export; sys.exit(probing.export.main(sys.argv[1:]))";

int export_parquet(const struct parquet *p, char *const *paths, int npaths) {
    const char *python = getenv("PROBING_PYTHON");
    char prefix[4096], path[4200];
    int n = 0;

    if (tool_prefix(prefix, sizeof prefix) != 0)
        return tool_fail("cannot find its own parts");
    snprintf(path, sizeof path, "%s/share/probing/python", prefix);
    if (!python || !*python)
        python = "python3";
    const char **args = calloc((size_t)npaths + 16, sizeof *args);
    if (!args)
        return tool_fail("cannot start %s: no memory", python);
    args[n++] = python;
    args[n++] = "-c";
    args[n++] = code;
    args[n++] = path;
    args[n++] = "--parquet";
    args[n++] = p->folder;
    if (p->alone)
        args[n++] = "--alone";
    if (p->json)
        args[n++] = "--json";
    if (p->quiet)
        args[n++] = "--quiet";
    args[n++] = "--";
    for (int i = 0; i < npaths; i++)
        args[n++] = paths[i];
    setenv("PROBING", "0", 1); /* Python itself must not be recorded */
    execvp(python, (char *const *)args);
    int err = errno;
    free(args);
    return tool_fail("cannot run %s: %s (PROBING_PYTHON=a Python 3.8 or later with pyarrow)",
                     python, strerror(err));
}
