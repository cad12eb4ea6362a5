/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common.h - what every command of `probing` shares: how it speaks, how it finds its own parts, how
 * it writes sizes and times for people.
 *
 * A command is `int cmd_NAME(int argc, char **argv)`: argv[0] is "probing-NAME", the return value
 * is the exit code. It writes data to stdout and talk to stderr, takes its options by a table
 * (options.h) and leaves --version as well as the flushing of stdout to main.c. Adding one: a row in
 * main.c's table.
 *
 *     int cmd_NAME(int argc, char **argv) {
 *         if (argc != 2)
 *             return tool_usage("one name is needed");   // "probing-hello: one name is needed (see ...)"
 *         if (greet(argv[1]) < 0)
 *             return tool_fail("cannot greet %s: %s", argv[1], strerror(errno));
 *         return TOOL_OK;
 *     }
 *
 * Single-threaded programs; nothing here is meant for signal handlers.
 */
#ifndef PROBING_TOOLS_COMMON_H
#define PROBING_TOOLS_COMMON_H

#include <stddef.h>
#include <stdint.h>

enum tool_exit {
    TOOL_HELPED = -1, /* --help was answered: nothing more to do; main() makes it 0 */
    TOOL_OK = 0,
    TOOL_PARTIAL = 1, /* done in part (of a damaged trace), or the answer is "no" */
    TOOL_USAGE = 2,   /* the command line is wrong */
    TOOL_FAILED = 3,  /* nothing could be done */
};

/* Name in front of every message: "probing-record"; set by main(). */
extern const char *tool_name;

/* One line on stderr: "probing-record: TEXT". */
void tool_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same, and returns TOOL_FAILED. Form: "cannot WHAT: REASON (WHAT TO DO)". */
int tool_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "probing-record: TEXT (see probing-record --help)", and returns TOOL_USAGE. */
int tool_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* What getopt_long() refused ('?' or ':'), said through tool_usage(). Call with opterr = 0. */
int tool_bad_option(char **argv);

/* The installation prefix (of PREFIX/bin/probing), found through /proc/self/exe. 0 or -errno. */
int tool_prefix(char *buf, size_t n);
/* PREFIX/lib/probing/NAME. 0; -ENOENT when there is no such file (buf still gets the name). */
int tool_lib(const char *name, char *buf, size_t n);

/* Absolute form of `path` (the file need not exist, its directory must). 0 or -errno. */
int tool_absolute(const char *path, char *buf, size_t n);

/* For people: "214.3 KiB"; "31.4 s", "2 h 05 min"; "1,234,567". Each returns buf. */
#define TOOL_TEXT 32
const char *tool_size(uint64_t bytes, char buf[TOOL_TEXT]);
const char *tool_duration(double seconds, char buf[TOOL_TEXT]);
const char *tool_count(uint64_t n, char buf[TOOL_TEXT]);

/* CLOCK_MONOTONIC, seconds. */
double tool_seconds(void);

/* The text as a shell reads it: as it is where that is safe, else in quotes. Returns buf; what does not fit is cut. */
const char *tool_quote(const char *text, char *buf, size_t n);

/* A number from the command line: the whole text must be one, within lo..hi. 0 or -EINVAL/-ERANGE.
 */
int tool_number(const char *text, double lo, double hi, double *out);

/* Commands; the table is in main.c. */
int cmd_record(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_query(int argc, char **argv);
int cmd_ask(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_stacks(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_flamegraph(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_cluster(int argc, char **argv);
int cmd_python_install(int argc, char **argv);
int cmd_backtrace(int argc, char **argv);
/* `probing -t PID inject|backtrace|eval ...`: argv as main() got it. */
int cmd_target(int argc, char **argv);

#endif
