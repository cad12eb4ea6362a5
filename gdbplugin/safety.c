/* SPDX-License-Identifier: Apache-2.0 */
#include "safety.h"

#include <stdio.h>
#include <string.h>

/* A word that ends in '*' matches what begins with it. */
static int any(const char *s, const char *const *words) {
    for (; *words; words++) {
        size_t n = strlen(*words);
        if ((*words)[n - 1] == '*' ? strncmp(s, *words, n - 1) == 0 : strcmp(s, *words) == 0)
            return 1;
    }
    return 0;
}

static const char *const libc_files[] = {"libc.so.6", "libc-2.*",  "libpthread*",
                                         "libdl.so*", "libdl-2.*", NULL};
static const char *const loader_files[] = {"ld-linux*", "ld-2.*", "ld.so*", NULL};
static const char *const malloc_files[] = {
    "libjemalloc*", "libtcmalloc*", "libmimalloc*", "libtbbmalloc*", "libhoard*",
    "libsnmalloc*", "librpmalloc*", "libasan*",     "libtsan*",      NULL};

/* Functions of the C library. Internal ones are seen only where its symbols or debug files are. */
static const struct {
    const char *what;
    const char *const names[36];
} forbidden[] = {
    {"malloc",
     {"malloc",
      "free",
      "calloc",
      "realloc",
      "reallocarray",
      "cfree",
      "memalign",
      "aligned_alloc",
      "posix_memalign",
      "valloc",
      "pvalloc",
      "malloc_*",
      "mallopt",
      "mallinfo*",
      "__libc_malloc*",
      "__libc_free*",
      "__libc_calloc",
      "__libc_realloc*",
      "__libc_memal*",
      "__libc_valloc",
      "__libc_pvall*",
      "_int_*",
      "sysmalloc*",
      "systrim*",
      "arena_*",
      "tcache_*",
      "heap_trim*",
      "new_heap*",
      "munmap_chunk",
      "__malloc_*",
      "unlink_chunk*",
      "sbrk",
      "brk",
      NULL}},
    {"the loader",
     {"dlopen", "dlclose", "dlsym", "dlvsym", "dlmopen", "dladdr*", "dlinfo", "dlerror",
      "dl_iterate_phdr", "__libc_dl*", "_dl_*", "__dlopen*", "__dlclose*", "__dlsym*", "dlopen_*",
      NULL}},
    {"fork",
     {"fork", "__fork", "__libc_fork", "_Fork", "vfork", "__vfork", "daemon", "posix_spawn*",
      "__spawn*", "__posix_spawn*", "__libc_spawn*", "__run_*fork*", "__run_fork_handlers*", NULL}},
    {"thread creation",
     {"pthread_create", "__pthread_create*", "pthread_exit", "__pthread_exit*", "__nptl_*",
      "allocate_stack*", "__deallocate_stack*", "create_thread*", "pthread_cancel",
      "__pthread_unwind*", "__libc_unwind_link_get", "setxid_*", "pthread_atfork",
      "__register_atfork", "__libc_thread_freeres*", NULL}},
    {"exit",
     {"exit", "__run_exit_handlers", "_exit", "_Exit", "quick_exit", "__cxa_finalize",
      "__cxa_atexit", "__new_exitfn", "__cxa_thread_atexit*", "__call_tls_dtors", NULL}},
};

int safety_names_matter(const char *module) {
    return any(module, libc_files) || any(module, loader_files) || any(module, malloc_files);
}

const char *safety_stack(const struct native_name *names, size_t n, char *buf, size_t cap) {
    int outside = 0; /* some frame lies outside the C library */
    int named = 0;   /* or has a name inside it, so that we know what it does */

    for (size_t i = 0; i < n; i++) {
        const struct native_name *f = &names[i];
        int libc = any(f->module, libc_files);

        if (any(f->module, loader_files))
            return "in the loader";
        if (any(f->module, malloc_files)) {
            snprintf(buf, cap, "in the allocator %s", f->module);
            return buf;
        }
        outside |= !libc;
        named |= libc && f->symbol[0] && strncmp(f->symbol, "clone", 5) &&
                 strncmp(f->symbol, "__clone", 7) && strcmp(f->symbol, "start_thread");
        for (size_t k = 0; f->symbol[0] && k < sizeof forbidden / sizeof *forbidden; k++) {
            /* The program may have brought its own malloc: the names count everywhere; the others only in
             * the C library (a program's own "fork" means nothing). */
            if ((libc || k == 0) && any(f->symbol, forbidden[k].names)) {
                if (!libc && any(f->symbol, (const char *const[]){"malloc_*", "_int_*", "arena_*",
                                                                  "tcache_*", "new_heap*", NULL}))
                    continue;
                snprintf(buf, cap, "in %s (%s)", forbidden[k].what, f->symbol);
                return buf;
            }
        }
    }
    if (n && !outside && !named)
        return "starting or ending a thread";
    return NULL;
}

const char *safety_carrier(const struct native_name *names, size_t n, int complete) {
    if (!complete)
        return "its stack cannot be unwound to its start";
    for (size_t i = 0; i < n; i++) {
        if (strstr(names[i].symbol, "restore_rt") ||
            strcmp(names[i].symbol, "__kernel_rt_sigreturn") == 0)
            return "it runs a signal handler";
        if (names[i].module[0] == 0 && i == 0)
            return "it runs generated code";
    }
    return NULL;
}
