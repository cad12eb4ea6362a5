/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_dump PID [-d DEPTH] [-i ITEMS] [-s STRING] [-r READS] [-n BYTES] [--record FILE] [ADDR...]: prints the objects
 * at these addresses as text, one a line; without addresses, the locals of all frames of all threads, as JSON. The process must
 * stand still, or at least not change what is read. --record writes every piece of memory that was read (u64 address, u64
 * length, bytes; first a struct pywalk_target, a u64 count of addresses and these), which fuzz_object replays.
 */
#include "agent/pywalk/object.h"
#include "find_python.h"
#include "read_target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct pywalk_limits limits;
static size_t room = 1 << 20;
static char *text;

static void json(const char *s) {
    putchar('"');
    for (; *s != '\0'; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            abort(); /* object.h promises that there are none */
        if (*s == '"' || *s == '\\')
            putchar('\\');
        putchar(*s);
    }
    putchar('"');
}

struct shown {
    const struct pywalk_objects *ob;
    int n;
};

static int show(void *ctx, const struct pywalk_local *local) {
    struct shown *s = ctx;
    char type[128];

    if (pywalk_type_name(s->ob, local->object, type, sizeof type) < 0)
        type[0] = '\0';
    pywalk_repr(s->ob, local->object, &limits, text, room);
    printf("%s\n  [", s->n++ > 0 ? "," : "");
    json(local->name);
    printf(",%u,", local->flags);
    json(type);
    putchar(',');
    json(text);
    putchar(']');
    return 0;
}

static int all_locals(const struct pywalk *pw, const struct pywalk_objects *ob) {
    static struct pywalk_thread threads[64];
    static struct pywalk_frame frames[2000];
    static struct pywalk_code code;
    int more, cut, n = pywalk_threads(pw, threads, 64, &more);

    if (n < 0)
        return n;
    printf("[");
    for (int i = 0; i < n; i++) {
        int count = pywalk_frames(pw, threads[i].tstate, frames, 2000, &cut);
        for (int k = 0; k < count; k++) {
            struct shown s = {ob, 0};
            if (pywalk_code(pw, frames[k].code, &code) != 0)
                return -EBADMSG;
            printf("%s\n{\"name\":", i + k > 0 ? "," : "");
            json(code.name);
            printf(",\"locals\":[");
            int rc = pywalk_locals(ob, &frames[k], 1000, show, &s);
            printf("],\"rc\":%d}", rc);
        }
    }
    printf("]\n");
    return 0;
}

int main(int argc, char **argv) {
    struct pywalk_found found;
    struct pywalk_objects ob;
    struct pywalk pw;
    uint64_t *addrs = calloc((size_t)argc + 1, sizeof *addrs), n = 0;
    int rc;

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (argv[i][0] != '-' && target == 0)
            target = (pid_t)atoi(argv[i]);
        else if (argv[i][0] != '-')
            addrs[n++] = strtoull(argv[i], NULL, 0);
        else if (strcmp(argv[i], "--record") == 0)
            record = fopen(argv[++i], "wb");
        else if (strcmp(argv[i], "-n") == 0)
            room = strtoul(argv[++i], NULL, 0);
        else {
            uint32_t v = (uint32_t)strtoul(value, NULL, 0);
            switch (argv[i++][1]) {
            case 'd':
                limits.depth = v;
                break;
            case 'i':
                limits.items = v;
                break;
            case 's':
                limits.string = v;
                break;
            default:
                limits.reads = v;
            }
        }
    }
    text = malloc(room);
    rc = text != NULL && target > 0 ? find_python(target, &found) : -EINVAL;
    if (rc == 0 && record != NULL) {
        fwrite(&found.target, sizeof found.target, 1, record);
        fwrite(&n, sizeof n, 1, record);
        fwrite(addrs, sizeof *addrs, n, record);
    }
    if (rc == 0)
        rc = pywalk_init(&pw, (struct pywalk_mem){read_target, NULL}, &found.target);
    if (rc == 0)
        rc = pywalk_objects_init(&ob, &pw);
    if (rc == 0 && n == 0)
        rc = all_locals(&pw, &ob);
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        pywalk_repr(&ob, addrs[i], &limits, text, room);
        puts(text);
    }
    if (record != NULL)
        fclose(record);
    if (rc != 0)
        fprintf(stderr, "object_dump: %s\n", strerror(-rc));
    free(text);
    free(addrs);
    return rc != 0 ? 3 : 0;
}
