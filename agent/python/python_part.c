/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/python_part.h"

#include <string.h>

#include "agent/python/capi.h"
#include "agent/python/gil.h"
#include "agent/python/pymodule.h"
#include "agent/python/variables.h"

static void open(struct writer *w) {
    (void)w;
    variables_open();
}

static void python(struct writer *w, const struct agent_python *found, const char *how) {
    (void)w;
    if (!capi_load(found) && !strcmp(how, "inject"))
        pymodule_attach(); /* the program may have imported our package before we came */
}

static void child(int whole) {
    (void)whole;
    variables_after_fork();
    gil_after_fork();
}

const struct agent_part python_part = {
    .name = "python",
    .open = open,
    .python = python,
    .close = variables_close,
    .child = child,
};
