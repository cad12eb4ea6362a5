/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_backtrace(): opens the source that is wanted, reads the stacks, writes them down. */
#include <errno.h>
#include <stdlib.h>

#include "inspect.h"
#include "origin.h"
#include "stacks.h"

int inspect_backtrace(int pid, struct inspect_stacks *want, char **out) {
    struct origin_files files = {want->sysroot, want->exe};
    struct stacks *st = NULL;
    struct origin s;
    int rc;

    *out = NULL;
    want->stood_ns = 0;
    if (want->core)
        rc = origin_core(&s, want->core, &files, out);
    else if (want->given)
        rc = origin_given(&s, want->given, out);
    else
        rc = origin_running(&s, pid, out);
    if (rc < 0)
        return rc;
    rc = stacks_read(&st, &s, want->flags, want->tid, out);
    if (rc == 0) {
        want->stood_ns = st->stood_ns;
        *out = render(st, want->flags);
        rc = *out ? 0 : -ENOMEM;
    }
    stacks_free(st); /* its names need the source */
    origin_close(&s);
    return rc;
}
