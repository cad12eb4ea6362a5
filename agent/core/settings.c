/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/settings.h"

#include <stdio.h>

/* The value has two slots: a change fills in the slot that is not read and then increments `version`, whose lowest
 * bit selects the slot. So a reader, or the child of a fork, sees a complete value even in the middle of a change. */
struct cell {
    uint64_t number;   /* (a) */
    uint32_t version;  /* (a) */
    uint32_t recorded; /* version that is in the trace; service thread only */
    struct setting_value value[2];
    void (*changed)(void); /* (a) */
};

static struct cell cells[SETTING_N];
static uint32_t busy; /* (a) lock: held by a thread that changes or copies a cell */

static void store(struct cell *c, const struct setting_value *v) {
    uint32_t next = __atomic_load_n(&c->version, __ATOMIC_RELAXED) + 1;
    c->value[next & 1] = *v;
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
    sys_lock(&busy);
    struct cell *c = &cells[id];
    size_t len = (size_t)snprintf(buf, n, "%s", c->value[c->version & 1].text);
    sys_unlock(&busy);
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
    sys_lock(&busy);
    struct cell *c = &cells[id];
    if (strcmp(c->value[c->version & 1].text, v.text))
        store(c, &v);
    sys_unlock(&busy);
    return 0;
}

void settings_watch(enum setting_id id, void (*changed)(void)) {
    __atomic_store_n(&cells[id].changed, changed, __ATOMIC_RELEASE);
}

void settings_init(enum setting_id id, const struct setting_value *v) {
    sys_lock(&busy);
    store(&cells[id], v);
    cells[id].recorded = cells[id].version;
    sys_unlock(&busy);
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
        WRITER_EMIT(w, config, .ts = sys_now(), .key = value_text(key), .value = value_text(text));
    }
}

void settings_after_fork(void) {
    sys_unlock(&busy);
}

/* Writes a string as JSON, in quotes. */
static void put_json(FILE *f, const char *text) {
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        fprintf(f, *p < ' ' ? "\\u%04x" : *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    fputc('"', f);
}

size_t settings_json(char *buf, size_t n) {
    FILE *f = fmemopen(buf, n, "w");
    if (!f)
        return 0;
    for (unsigned i = 0; i < SETTING_N; i++) {
        const struct setting *s = setting_at((enum setting_id)i);
        char text[SETTING_TEXT_MAX];
        settings_text((enum setting_id)i, text, sizeof text);
        fprintf(f, "%s\"probing.%s\":{\"value\":", i ? "," : "{", s->key);
        put_json(f, text);
        fprintf(f, ",\"range\":\"%s\",\"doc\":\"%s\"}", s->range, s->doc);
    }
    fputc('}', f);
    fflush(f);
    long len = ftell(f);
    fclose(f);
    return len > 0 ? (size_t)len : 0;
}
