/* SPDX-License-Identifier: Apache-2.0 */
/* numpy's datetime64 and timedelta64: a count of units, as ISO 8601 has it. */
#include "object_render.h"

static const char *const units[] = {"Y", "M",  "W",  "?",  "D",  "h",  "m",
                                    "s", "ms", "us", "ns", "ps", "fs", "as"};
enum { YEAR, MONTH, WEEK, DAY = 4, HOUR, MINUTE, SECOND, GENERIC = 14 };

void obj_put_unit(struct render *r, const struct array_view *v) {
    if (v->per > 1)
        obj_put_format(r, "%d", v->per);
    obj_put(r, units[v->unit]);
}

bool obj_has_unit(const struct array_view *v) {
    return v->per > 0 && v->unit >= 0 && v->unit < GENERIC;
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

static bool leap(int64_t year) {
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static void put_day(struct render *r, int64_t days) {
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t year = 1970 + 400 * floor_div(days, 146097); /* days in 400 years */
    int month = 0, length;

    for (days -= 146097 * floor_div(days, 146097); days >= 365 + leap(year); year++)
        days -= 365 + leap(year);
    for (; days >= (length = lengths[month] + (month == 1 && leap(year))); month++)
        days -= length;
    obj_put_format(r, "%04ld-%02d-%02d", year, month + 1, (int)days + 1);
}

void obj_put_time64(struct render *r, int64_t value, const struct array_view *v) {
    int64_t n, days, part, second, fraction, per = 1;

    if (value == INT64_MIN) {
        obj_put(r, "NaT");
        return;
    }
    if (v->kind == 'm' || !obj_has_unit(v) || __builtin_mul_overflow(value, (int64_t)v->per, &n) ||
        (v->unit <= DAY && (n > 1ll << 40 || n < -(1ll << 40)))) {
        obj_put_format(r, "%ld", value);
        return;
    }
    if (v->unit == YEAR) {
        obj_put_format(r, "%04ld", n + 1970);
        return;
    }
    if (v->unit == MONTH) {
        part = floor_div(n, 12);
        obj_put_format(r, "%04ld-%02d", part + 1970, (int)((n % 12 + 12) % 12) + 1);
        return;
    }
    if (v->unit <= DAY) {
        put_day(r, v->unit == WEEK ? n * 7 : n);
        return;
    }
    for (int unit = SECOND; unit < v->unit; unit++)
        per *= 1000;
    part = floor_div(n, per);
    fraction = (n % per + per) % per;
    per = v->unit == HOUR ? 24 : v->unit == MINUTE ? 1440 : 86400; /* of a day */
    days = floor_div(part, per);
    second = (part % per + per) % per * (86400 / per);
    put_day(r, days);
    obj_put_format(r, "T%02d", (int)(second / 3600));
    if (v->unit >= MINUTE)
        obj_put_format(r, ":%02d", (int)(second / 60 % 60));
    if (v->unit >= SECOND)
        obj_put_format(r, ":%02d", (int)(second % 60));
    if (v->unit > SECOND)
        obj_put_format(r, ".%0*ld", 3 * (v->unit - SECOND), fraction);
}
