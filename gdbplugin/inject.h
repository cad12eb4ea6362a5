/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inject.h - between the files of the injection: how the agent gets into a process (inspect.h says what a caller may ask for).
 */
#ifndef PROBING_INSPECT_INJECT_H
#define PROBING_INSPECT_INJECT_H

#include "inspect.h"
#include "native.h"
#include "preflight.h"
#include "stage.h"

struct inject {
    pid_t pid;
    unsigned flags;
    int passive;       /* wanted only to be asked */
    uint64_t image[2]; /* proc_image(), from before anything was learnt about it */
    unsigned execs;    /* how often it has begun another program since we came */
    struct proc_maps maps;
    struct preflight pre;
    struct stage stage;
    struct native *native;
    uint64_t stamp;       /* of the mappings that `native` knows */
    uint64_t *allocators; /* start addresses of files that bring a malloc of their own */
    size_t nallocators;
    struct native_frame *frames;
    struct native_name *names;
    uint64_t stood_ns, longest_ns; /* in all; the longest stop */
    int stood_before;              /* and longer, unknown how long */
    unsigned stops;
    int watched;   /* dlopen came back unwatched, without having loaded anything: find out why */
    pid_t child;   /* the stub's thread, held until the others run again */
    char why[256]; /* what stood against the last try */
    const char *means; /* how it got in, for the report */
};

/* The mappings, anew. 0, -ESRCH (a zombie has none), or -errno. */
int inject_maps(struct inject *in);
/* stop_release(), with its time in the report. */
void inject_release(struct inject *in, struct stop *s);
/* -ESTALE: what is known of it is of a program that it does not run any more. */
int inject_same(const struct inject *in);
/* Stops it, the program that we know. 0; -EAGAIN not just now, in->why says why; -ESTALE; or -errno with *why. */
int inject_stand(struct inject *in, struct stop *s, char **why);
/* Whether the stub is mapped there. */
int inject_mapped(struct inject *in);

/*
 * Each tries until its deadline. 0: the stub is loaded, or surely will be; -EAGAIN: nothing was done, or it has been
 * undone, in->why says why; -ENOTSUP: the same, and there is no use in trying again; another -errno: give up, with
 * *why (malloc()ed) or without.
 */
int native_load(struct inject *in, char **why);
int pending_load(struct inject *in, char **why);
int remote_load(struct inject *in, char **why);
/* Whether it could be tried: 0, or -ENOTSUP with in->why. Reads only. */
int pending_possible(struct inject *in);
int remote_possible(struct inject *in);

#endif
