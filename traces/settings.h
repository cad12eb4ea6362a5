/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - the table of settings (settings.def), and the check whether a text is a valid value for one. The agent and the
 * tools share it, so that both accept the same values.
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
#define SETTING_WHY      512

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
    char text[SETTING_TEXT_MAX]; /* in canonical form, as in config records and `probing config` */
};

/* Returns the row of settings.def; id must be below SETTING_N. */
const struct setting *setting_at(enum setting_id id);
/* Returns the id of a key, which may begin with "probing."; -ENOENT when there is no such setting. */
int setting_find(const char *key);
/* Parses a value. Returns 0, or -EINVAL with one line in `why` that says what is wrong and what is allowed. */
int setting_parse(enum setting_id id, const char *text, struct setting_value *out, char *why,
                  size_t n);
/* Parses the argument of option -r: "100" and "100Hz" are hertz, "10ms" and "0.01s" a period. Returns 0 or -EINVAL. */
int setting_rate(const char *text, double min, double max, double *hz);
/* Returns 1 and a hint for people when a valid value may not be what was meant: a bare number of seconds for a rate. Else 0. */
int setting_advice(enum setting_id id, const char *text, char *buf, size_t n);
/* Makes the name of the setting's environment variable, such as "PROBING_TORCH_PROFILING". Returns buf. */
#define SETTING_ENV 64
const char *setting_env(enum setting_id id, char buf[SETTING_ENV]);
/* Whether the environment's entry NAME=VALUE sets nothing, but NAME is a slip away from a variable that we read: PROBING_TRIGERS,
 * PROBING_SAMPLERATE. Then `why` says what may have been meant. Other names that begin with PROBING_ are other programs'. */
int setting_misspelt(const char *entry, char *why, size_t n);
/* Writes a message for an unknown key into `why`; it names the existing keys. */
void setting_unknown(const char *key, char *why, size_t n);

#endif
