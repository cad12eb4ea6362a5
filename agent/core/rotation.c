/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/rotation.h"

#include <stdio.h>
#include <sys/stat.h>

#include "agent/base/fork_lock.h"
#include "agent/core/meta.h"
#include "agent/core/settings.h"
#include "traces/decimal.h"
#include "traces/own_file.h"

#define SECOND     1000000000ull
#define DAY_UNIT   (86400ull * SECOND / DECIMAL_MILLION) /* retention_days counts millionths */
#define CHECK_MOST (60 * SECOND)
#define TRIES      1000 /* segment numbers to try: an earlier recording there may have taken some */

void rotation_open(struct rotation *r, const char *host, int rank, const char *trace, int main) {
    size_t n = strlen(trace);
    memset(r, 0, sizeof *r);
    r->first = 1;
    if (main) {
        char name[128];
        run_process_name(host, rank, (unsigned)getpid(), name, sizeof name);
        r->off =
            snprintf(r->dir, sizeof r->dir, "%s.d", trace) >= (int)sizeof r->dir ||
            snprintf(r->stem, sizeof r->stem, "%s.d/%s", trace, name) >= (int)sizeof r->stem - 32;
    } else {
        n -= n > 4 && !strcmp(trace + n - 4, ".zst") ? 4 : 0;
        r->off =
            snprintf(r->stem, sizeof r->stem, "%.*s", (int)n, trace) >= (int)sizeof r->stem - 32;
    }
}

static void segment_path(const struct rotation *r, uint32_t n, char *buf, size_t size) {
    snprintf(buf, size, "%s.%u.zst", r->stem, n);
}

/* Lets the dictionaries use the rest of max_memory. There are two epochs of them, and an entry takes 43 bytes when its table has just grown. */
static void bound_memory(struct writer *w) {
    uint64_t most = settings_number(SETTING_max_memory);
    uint64_t others = writer_live(w)->file_size + (4u << 20);
    uint64_t entries = most > others ? (most - others) / (2 * 43) : 1024;
    writer_bound(w, most ? entries : UINT64_MAX);
}

static int is_due(const struct writer *w) {
    uint64_t size = settings_number(SETTING_segment_size), bytes = writer_segment_bytes(w);
    uint64_t keep = settings_number(SETTING_retention_days) * DAY_UNIT;
    uint64_t age = sys_now() - writer_segment_began(w), most = keep / 8;
    if (most < SECOND)
        most = SECOND;
    return bytes && ((size && bytes >= size) || (keep && age >= most));
}

static int next_segment(struct rotation *r, struct writer *w) {
    char path[CONFIG_PATH + 16];
    int err = r->dir[0] ? own_dir_make(r->dir, 0755) : 0; /* it may have been deleted */
    snprintf(path, sizeof path, "%s", r->dir);
    err = err ? err : -EEXIST;
    pthread_mutex_lock(
        &fork_lock.mutex); /* a forked child closes our file: its copy must be consistent */
    for (unsigned i = 0; i < TRIES && err == -EEXIST; i++) {
        segment_path(r, ++r->last, path, sizeof path);
        err = writer_next_segment(w, path);
    }
    pthread_mutex_unlock(&fork_lock.mutex);
    if (err) {
        r->off = 1;
        meta_note(w, 2, "rotation", "the trace goes on in one file: %s: %s", path,
                  strerrordesc_np(-err));
    }
    return !err;
}

/* Deletes segments that ended longer ago than `keep`, the oldest first; skips those that somebody has moved or deleted. */
static void drop_old(struct rotation *r, struct writer *w, uint64_t keep) {
    while (r->first <= r->last) {
        char path[CONFIG_PATH + 16];
        struct stat st;
        segment_path(r, r->first, path, sizeof path);
        if (!stat(path, &st)) {
            uint64_t ended = (uint64_t)st.st_mtim.tv_sec * SECOND + (uint64_t)st.st_mtim.tv_nsec;
            uint64_t now = sys_clock(CLOCK_REALTIME);
            if (now < ended || now - ended <= keep)
                return;
            char text[SETTING_TEXT_MAX];
            settings_text(SETTING_retention_days, text, sizeof text);
            if (!unlink(path))
                meta_note(w, 0, "rotation", "deleted %s: it ended more than %s days ago", path,
                          text);
        }
        r->first++;
    }
}

int rotation_round(struct rotation *r, struct writer *w) {
    uint64_t keep = settings_number(SETTING_retention_days) * DAY_UNIT, now = sys_now();
    bound_memory(w);
    if (r->off)
        return 0;
    int begun = is_due(w) && next_segment(r, w);
    if (keep && now >= r->next_check) {
        uint64_t every = keep / 16 < SECOND / 4 ? SECOND / 4 : keep / 16;
        drop_old(r, w, keep);
        r->next_check = now + (every > CHECK_MOST ? CHECK_MOST : every);
    }
    return begun;
}
