/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Linked into the tools where the compiler brings libsupc++.a (Makefile): loading libstdc++ takes a millisecond, a tenth of a live answer. */
extern char *__cxa_demangle(const char *, char *, size_t *, int *) __attribute__((weak));

static char *(*demangle)(const char *, char *, size_t *, int *);

static void find_demangle(void) {
    void *lib = __cxa_demangle ? NULL : dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
    void *f = lib ? dlsym(lib, "__cxa_demangle") : NULL;

    if (__cxa_demangle)
        demangle = __cxa_demangle;
    else
        memcpy(&demangle, &f, sizeof f);
}

/* Length of the name without "@GLIBC_2.34", ".lto_priv.0", ".constprop.1", ".isra.0", ".part.0", ".cold". */
static size_t bare_length(const char *name) {
    static const char *const suffixes[] = {".lto_priv", ".constprop", ".isra", ".part", ".cold"};
    size_t n = strcspn(name, "@");

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const char *at = strstr(name, suffixes[i]);
        if (at && at > name && (size_t)(at - name) < n)
            n = (size_t)(at - name);
    }
    return n ? n : strlen(name);
}

char *symbol_readable(const char *name) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    size_t n = bare_length(name);
    char *bare = name[n] ? strndup(name, n) : NULL, *text = NULL;
    int status = 0;

    if (name[n] && !bare)
        return NULL;
    if (name[0] == '_' && name[1] == 'Z') {
        pthread_once(&once, find_demangle);
        text = demangle ? demangle(bare ? bare : name, NULL, NULL, &status) : NULL;
    }
    if (!text)
        return bare;
    free(bare);
    return text;
}

int symbol_is_eval(const char *name) {
    static const char eval[] = "_PyEval_EvalFrameDefault";
    size_t n = sizeof eval - 1;

    /* .cold, .lto_priv.0, .constprop.1 */
    return strncmp(name, eval, n) == 0 && (name[n] == 0 || name[n] == '.');
}
