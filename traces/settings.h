/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - which settings there are (settings.def), and whether a text is a value for one. Used by the agent and by the
 * tools, so both allow the same.
 *
 *     struct setting_value v;
 *     char why[SETTING_WHY];
 *     int id = setting_find("probing.sample_rate");                   // or "sample_rate"
 *     if (id < 0 || setting_parse(id, "0.05", &v, why, sizeof why)) error(why);
 *     v.u == 50000000, v.text is "0.05"
 *
 * Pure: nothing allocates, nothing depends on the locale. Any thread.
 */
#ifndef PROBING_TRACES_SETTINGS_H
#define PROBING_TRACES_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

#define SETTING_TEXT_MAX 512 /* bytes of a value, NUL included */
#define SETTING_WHY      320

enum setting_kind {
    SETTING_FLAG,    /* u: 0 or 1. "0", "1", "off", "on" */
    SETTING_SECONDS, /* u: ns. "0.01" seconds, "10ms", "500us", "2s", or how often: "100Hz", "1kHz" */
    SETTING_BYTES,   /* u: bytes. "1048576", "512K", "64MB", "1.5GiB": powers of 1024 */
    SETTING_NUMBER,  /* u: as it is */
    SETTING_DECIMAL, /* u: millionths (DECIMAL_MILLION) */
    SETTING_TEXT,    /* u: 0 when empty, else 1 */
};

enum setting_id {
#define SETTING(id, key, kind, min, max, initial, range, doc, check) SETTING_##id,
#include "settings.def"
    SETTING_N
};

struct setting {
    const char *key;
    enum setting_kind kind;
    double min, max;
    const char *initial, *range, *doc;
    int (*check)(const char *text, char *why, size_t n);
};

struct setting_value {
    uint64_t u;                  /* see enum setting_kind */
    char text[SETTING_TEXT_MAX]; /* in the one form that config records and `probing config` have */
};

/* The row of settings.def; id is below SETTING_N. */
const struct setting *setting_at(enum setting_id id);
/* The id of a key, with or without "probing."; -ENOENT. */
int setting_find(const char *key);
/* 0; -EINVAL, and `why` says in one line what is wrong and what is allowed. */
int setting_parse(enum setting_id id, const char *text, struct setting_value *out, char *why,
                  size_t n);
/* The option -r: "100" and "100Hz" are hertz, "10ms" and "0.01s" a period. 0 or -EINVAL. */
int setting_rate(const char *text, double min, double max, double *hz);
/* 1 and a line for people where a good value may not be what was meant: a bare number of seconds for a rate. */
int setting_advice(enum setting_id id, const char *text, char *buf, size_t n);
/* "PROBING_TORCH_PROFILING". Returns buf. */
#define SETTING_ENV 64
const char *setting_env(enum setting_id id, char buf[SETTING_ENV]);
/* `why` for a key that there is not: names those that there are. */
void setting_unknown(const char *key, char *why, size_t n);

#endif
