/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "decimal.h"
#include "exprs.h"
#include "torch_setting.h"
#include "triggers.h"

/* Names of variables, with commas or spaces between. */
static int setting_names_check(const char *text, char *why, size_t n) {
    size_t good =
        strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-*, ");
    if (text[good])
        snprintf(why, n, "'%c' is in no name", text[good]);
    return text[good] ? -EINVAL : 0;
}

static const struct setting table[SETTING_N] = {
#define SETTING(id, key, kind, min, max, initial, range, doc, check)                               \
    [SETTING_##id] = {key, SETTING_##kind, min, max, initial, range, doc, check},
#include "settings.def"
};

const struct setting *setting_at(enum setting_id id) {
    return &table[id];
}

int setting_find(const char *key) {
    if (!strncmp(key, "probing.", 8))
        key += 8;
    for (int i = 0; i < SETTING_N; i++)
        if (!strcmp(key, table[i].key))
            return i;
    return -ENOENT;
}

const char *setting_env(enum setting_id id, char buf[SETTING_ENV]) {
    size_t n = (size_t)snprintf(buf, SETTING_ENV, "PROBING_%s", table[id].key);
    for (size_t i = 0; i < n && i < SETTING_ENV - 1; i++) {
        if (buf[i] >= 'a' && buf[i] <= 'z')
            buf[i] = (char)(buf[i] - 'a' + 'A');
        else if (buf[i] == '.')
            buf[i] = '_';
    }
    return buf;
}

/* Returns how many letters must be put in, left out or exchanged to make b of a; letters of both cases are the same. */
static unsigned slips(const char *a, size_t na, const char *b, size_t nb) {
    unsigned row[SETTING_ENV];
    for (size_t k = 0; k <= nb; k++)
        row[k] = (unsigned)k;
    for (size_t i = 1; i <= na; i++) {
        unsigned before = row[0];
        row[0] = (unsigned)i;
        for (size_t k = 1; k <= nb; k++) {
            unsigned same = before + ((a[i - 1] ^ b[k - 1]) & ~0x20 ? 1 : 0);
            before = row[k];
            row[k] = row[k] < row[k - 1] ? row[k] + 1 : row[k - 1] + 1;
            row[k] = same < row[k] ? same : row[k];
        }
    }
    return row[nb];
}

#define FEW_LETTERS                                                                                \
    16 /* two slips in a name that is no longer make too many words of it: PROBING_TRAIN */

int setting_misspelt(const char *entry, char *why, size_t n) {
    static const char *const more[] = {"PROBE_TORCH_EXPRS", "PROBING_TRACE", "PROBING_RUN_DIR",
                                       "PROBING_RUN"};
    size_t len = strcspn(entry, "=");
    const char *meant = NULL;
    char name[SETTING_ENV], best[SETTING_ENV];
    unsigned fewest = 3;

    if (strncasecmp(entry, "PROB", 4) || len >= SETTING_ENV)
        return 0;
    for (unsigned i = 0; i < SETTING_N + sizeof more / sizeof *more; i++) {
        const char *known =
            i < SETTING_N ? setting_env((enum setting_id)i, name) : more[i - SETTING_N];
        size_t size = strlen(known);
        unsigned k = slips(entry, len, known, size);
        if (k == 0 && !strncmp(entry, known, size))
            return 0;
        if (k < fewest && (k < 2 || size > FEW_LETTERS)) {
            fewest = k;
            meant = strcpy(best, known);
        }
    }
    if (meant)
        snprintf(why, n, "%.*s is no setting: %s may be meant", (int)len, entry, meant);
    return meant != NULL;
}

/* Prints u / unit without trailing zeros. By hand, since the target's locale may use a comma. */
static void print_decimal(uint64_t u, uint64_t unit, int places, char *buf, size_t n) {
    int len = snprintf(buf, n, "%" PRIu64 ".%0*" PRIu64, u / unit, places, u % unit);
    while (len > 0 && buf[len - 1] == '0')
        buf[--len] = 0;
    if (len > 0 && buf[len - 1] == '.')
        buf[--len] = 0;
}

/* K, KB and KiB are the same power of 1024; B alone means bytes. */
static int parse_bytes(const struct setting *s, const char *text, uint64_t *out) {
    static const char units[] = "KMGT";
    const char *end = text + strlen(text), *at;
    double v, unit = 1;
    int b = end > text && (end[-1] & ~0x20) == 'B';
    end -= b;
    int i = b && end > text && (end[-1] & ~0x20) == 'I';
    end -= i;
    if (end > text && (at = strchr(units, end[-1] & ~0x20)) && *at) {
        for (const char *p = units; p <= at; p++)
            unit *= 1024;
        end--;
    } else if (i) {
        return -EINVAL;
    }
    return decimal_digits(text, end, &v) ? -EINVAL
                                         : decimal_bounded(v * unit, s->min, s->max, 1, out);
}

/* Returns the length of `text` without its unit. *scale: seconds, or hertz, of one unit; *hz: the unit is a frequency. */
static size_t time_unit(const char *text, double *scale, int *hz) {
    static const struct {
        const char *name;
        double scale;
    } units[] = {{"kHz", 1000}, {"Hz", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"s", 1}};
    size_t n = strlen(text);
    *scale = 1;
    *hz = 0;
    for (unsigned i = 0; i < sizeof units / sizeof *units; i++) {
        size_t len = strlen(units[i].name);
        if (n <= len || strcasecmp(text + n - len, units[i].name))
            continue;
        *scale = units[i].scale;
        *hz = i < 2;
        return n - len;
    }
    return n;
}

/* "0.01", "0.01s", "10ms", "100Hz" */
static int parse_seconds(const struct setting *s, const char *text, uint64_t *out) {
    double v, scale;
    int hz;
    size_t n = time_unit(text, &scale, &hz);
    if (decimal_digits(text, text + n, &v) || (hz && v == 0))
        return -EINVAL;
    return decimal_bounded(hz ? 1 / (v * scale) : v * scale, s->min, s->max, 1e9, out);
}

int setting_rate(const char *text, double min, double max, double *hz) {
    double v, scale;
    int per_second;
    size_t n = time_unit(text, &scale, &per_second);
    if (decimal_digits(text, text + n, &v) || v == 0)
        return -EINVAL;
    *hz = text[n] && !per_second ? 1 / (v * scale) : v * scale;
    return *hz < min * (1 - 1e-9) || *hz > max * (1 + 1e-9) ? -EINVAL : 0;
}

int setting_advice(enum setting_id id, const char *text, char *buf, size_t n) {
    double v;
    if (id != SETTING_sample_rate || decimal_digits(text, text + strlen(text), &v) || v <= 1)
        return 0;
    snprintf(buf, n, "sample_rate=%s is a sample every %s seconds; %sHz: %s samples a second", text,
             text, text, text);
    return 1;
}

static int parse_flag(const char *text, uint64_t *out) {
    *out = !strcmp(text, "1") || !strcmp(text, "on");
    return *out || !strcmp(text, "0") || !strcmp(text, "off") ? 0 : -EINVAL;
}

static int parse_text(const struct setting *s, const char *text, struct setting_value *v, char *why,
                      size_t n) {
    if (strlen(text) >= sizeof v->text || strpbrk(text, "\n\r"))
        return -EINVAL;
    strcpy(v->text, text);
    v->u = text[0] != 0;
    return s->check ? s->check(text, why, n) : 0;
}

int setting_parse(enum setting_id id, const char *text, struct setting_value *out, char *why,
                  size_t n) {
    const struct setting *s = &table[id];
    char reason[SETTING_WHY / 2] = "";
    int err = 0;
    memset(out, 0, sizeof *out);
    switch (s->kind) {
    case SETTING_FLAG:
        err = parse_flag(text, &out->u);
        strcpy(out->text, out->u ? "1" : "0");
        break;
    case SETTING_SECONDS:
        err = parse_seconds(s, text, &out->u);
        print_decimal(out->u, 1000000000u, 9, out->text, sizeof out->text);
        break;
    case SETTING_BYTES:
        err = parse_bytes(s, text, &out->u);
        snprintf(out->text, sizeof out->text, "%" PRIu64, out->u);
        break;
    case SETTING_NUMBER:
        err = strchr(text, '.') ? -EINVAL : decimal_parse(text, s->min, s->max, 1, &out->u);
        snprintf(out->text, sizeof out->text, "%" PRIu64, out->u);
        break;
    case SETTING_DECIMAL:
        err = decimal_parse(text, s->min, s->max, DECIMAL_MILLION, &out->u);
        print_decimal(out->u, DECIMAL_MILLION, 6, out->text, sizeof out->text);
        break;
    case SETTING_TEXT:
        err = parse_text(s, text, out, reason, sizeof reason);
        break;
    }
    if (err && n)
        snprintf(why, n, "%s=%.80s: it must be %s%s%s", s->key, text, s->range,
                 reason[0] ? "; " : "", reason);
    return err ? -EINVAL : 0;
}

void setting_unknown(const char *key, char *why, size_t n) {
    size_t len = (size_t)snprintf(why, n, "there is no setting %.60s; there are: ", key);
    for (int i = 0; i < SETTING_N && len < n; i++)
        len += (size_t)snprintf(why + len, n - len, "%s%s", i ? ", " : "", table[i].key);
}
