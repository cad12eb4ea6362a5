/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_format.h - formats a time as text, by a strftime format (as in chrono and DataFusion) or by a pattern of PostgreSQL's to_char().
 *
 *     char *text;
 *     int err = time_format(us, "%Y-%m-%d %H:%M:%S%.3f", &text);   // 2026-01-31 12:00:00.250
 *     err = time_format(us, "YYYY-MM-DD HH24:MI:SS.MS", &text);    // the same
 *
 * Times are UTC, and names are English whatever the locale. A format that contains '%' is a strftime format:
 *     %Y %C %y %m %b %h %B %d %e %a %A %w %u %U %W %G %g %V %j %D %x %F %v %H %k %I %l %P %p %M %S %R %T %X %r %Z %z %:z %c %+ %s %t %n %%
 *     %f (nanoseconds), %.f %.3f %.6f %.9f (with the point), %3f %6f %9f; %-d %_d %0d
 * Any other format is a PostgreSQL pattern:
 *     YYYY YYY YY Y IYYY MM MONTH Month month MON Mon mon DD DDD D ID DAY Day day DY Dy dy HH24 HH12 HH MI SS SSSS MS US FF1 ... FF6 AM PM am pm
 *     Q WW W IW TZ tz OF J; FM before a field that would have leading blanks or zeros; "text" as it is
 */
#ifndef PROBING_CONVERTER_TIME_FORMAT_H
#define PROBING_CONVERTER_TIME_FORMAT_H

#include <stdint.h>

/* us: microseconds since the epoch. *out is malloc'ed. Returns 0, -ENOMEM, or -EINVAL: no such format. */
int time_format(int64_t us, const char *format, char **out);

#endif
