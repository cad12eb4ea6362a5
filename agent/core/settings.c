/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/settings.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "agent/core/meta.h"
#include "agent/core/state.h"

/* Two places for the value: a change fills in the one that is not read and then turns `version`, whose lowest
 * bit says which one holds. So a fork or a reader in the middle of it sees a whole value. */
struct cell {
    uint64_t number;   /* (a) */
    uint32_t version;  /* (a) */
    uint32_t recorded; /* service thread: the version that the trace has */
    struct setting_value slot[2];
    void (*changed)(void); /* (a) */
};

static struct cell cells[SETTING_N];
static uint32_t busy; /* (a) somebody changes a cell */

static void enter(void) {
    while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void leave(void) {
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}

static void store(struct cell *c, const struct setting_value *v) {
    uint32_t next = __atomic_load_n(&c->version, __ATOMIC_RELAXED) + 1;
    c->slot[next & 1] = *v;
    __atomic_store_n(&c->number, v->u, __ATOMIC_RELAXED);
    __atomic_store_n(&c->version, next, __ATOMIC_RELEASE);
}

uint64_t settings_number(enum setting_id id) {
    return __atomic_load_n(&cells[id].number, __ATOMIC_RELAXED);
}

uint32_t settings_version(enum setting_id id) {
    return __atomic_load_n(&cells[id].version, __ATOMIC_ACQUIRE);
}

size_t settings_text(enum setting_id id, char *buf, size_t n) {
    enter();
    struct cell *c = &cells[id];
    size_t len = (size_t)snprintf(buf, n, "%s", c->slot[c->version & 1].text);
    leave();
    return len < n ? len : n - 1;
}

int settings_set(const char *key, const char *text, char *why, size_t n) {
    struct setting_value v;
    int id = setting_find(key), err;
    if (id < 0) {
        setting_unknown(key, why, n);
        return -ENOENT;
    }
    err = setting_parse((enum setting_id)id, text, &v, why, n);
    if (err)
        return err;
    enter();
    struct cell *c = &cells[id];
    if (strcmp(c->slot[c->version & 1].text, v.text))
        store(c, &v);
    leave();
    agent_wake();
    return 0;
}

void settings_watch(enum setting_id id, void (*changed)(void)) {
    __atomic_store_n(&cells[id].changed, changed, __ATOMIC_RELEASE);
}

void settings_init(enum setting_id id, const struct setting_value *v) {
    enter();
    store(&cells[id], v);
    cells[id].recorded = cells[id].version;
    leave();
}

void settings_apply(struct writer *w, int all) {
    for (unsigned i = 0; i < SETTING_N; i++) {
        struct cell *c = &cells[i];
        uint32_t version = __atomic_load_n(&c->version, __ATOMIC_ACQUIRE);
        char key[SETTING_ENV], text[SETTING_TEXT_MAX];
        if (version == c->recorded && !all)
            continue;
        void (*changed)(void) = __atomic_load_n(&c->changed, __ATOMIC_ACQUIRE);
        if (version != c->recorded && changed)
            changed();
        c->recorded = version;
        snprintf(key, sizeof key, "probing.%s", setting_at((enum setting_id)i)->key);
        settings_text((enum setting_id)i, text, sizeof text);
        meta_config(w, key, text);
    }
}

void settings_after_fork(void) {
    leave();
}

/* A JSON string without its quotes; the length it needs. */
static size_t quote(char *buf, size_t n, const char *text) {
    size_t len = 0;
    for (; *text; text++) {
        unsigned char ch = (unsigned char)*text;
        char one[8];
        size_t k = 1;
        if (ch == '"' || ch == '\\')
            k = (size_t)snprintf(one, sizeof one, "\\%c", ch);
        else if (ch < ' ')
            k = (size_t)snprintf(one, sizeof one, "\\u%04x", ch);
        else
            one[0] = (char)ch;
        if (len + k < n)
            memcpy(buf + len, one, k);
        len += k;
    }
    return len;
}

size_t settings_json(char *buf, size_t n) {
    size_t len = 0;
    for (unsigned i = 0; i < SETTING_N; i++) {
        const struct setting *s = setting_at((enum setting_id)i);
        char text[SETTING_TEXT_MAX], coded[6 * SETTING_TEXT_MAX] = "";
        settings_text((enum setting_id)i, text, sizeof text);
        quote(coded, sizeof coded - 1, text);
        len +=
            (size_t)snprintf(len < n ? buf + len : NULL, len < n ? n - len : 0,
                             "%s\"probing.%s\":{\"value\":\"%s\",\"range\":\"%s\",\"doc\":\"%s\"}",
                             i ? "," : "{", s->key, coded, s->range, s->doc);
    }
    len += (size_t)snprintf(len < n ? buf + len : NULL, len < n ? n - len : 0, "}");
    return len < n ? len : n - 1;
}
