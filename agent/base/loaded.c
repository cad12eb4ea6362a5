/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/base/loaded.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

static int by_name(struct dl_phdr_info *info, size_t size, void *arg) {
    const char **want = arg, *base = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)size;
    if (!base || strncmp(base + 1, want[0], strlen(want[0])))
        return 0;
    snprintf((char *)want[1], 4096, "%s", info->dlpi_name);
    return 1;
}

int loaded_find(const char *library, void **handle) {
    char path[4096];
    const char *arg[2] = {library, path};
    if (!dl_iterate_phdr(by_name, arg))
        return -ENOENT;
    if (!handle)
        return 0;
    *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    return *handle ? 0 : -ENOENT;
}
