/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common.h - what all commands of `probing` share: messages, finding the parts of the installation, and formatting sizes and times for
 * people.
 *
 * A command is `int cmd_NAME(int argc, char **argv)`: argv[0] is "probing-NAME", the return value is the exit code. It writes data to
 * stdout and messages to stderr, describes its options by a table (options.h), and leaves --version and the flushing of stdout to main.c.
 * To add a command, add a row to main.c's table.
 *
 *     int cmd_NAME(int argc, char **argv) {
 *         if (argc != 2)
 *             return tool_usage("one name is needed");   // "probing-hello: one name is needed (see ...)"
 *         if (greet(argv[1]) < 0)
 *             return tool_fail("cannot greet %s: %s", argv[1], strerror(errno));
 *         return TOOL_OK;
 *     }
 *
 * For single-threaded programs; nothing here may be called from signal handlers.
 */
#ifndef PROBING_TOOLS_COMMON_H
#define PROBING_TOOLS_COMMON_H

#include <stddef.h>
#include <stdint.h>

enum tool_exit {
    TOOL_HELPED = -1, /* --help was answered and there is nothing more to do; main() returns 0 */
    TOOL_OK = 0,
    TOOL_PARTIAL = 1, /* partly done (a damaged trace), or the answer is "no" */
    TOOL_USAGE = 2,   /* the command line is wrong */
    TOOL_FAILED = 3,  /* nothing could be done */
};

/* The name in front of every message, such as "probing-record"; set by main(). */
extern const char *tool_name;

/* Prints one line on stderr: "probing-record: TEXT". */
void tool_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Does the same and returns TOOL_FAILED. The text has the form "cannot WHAT: REASON (WHAT TO DO)". */
int tool_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Prints "probing-record: TEXT (see probing-record --help)" and returns TOOL_USAGE. */
int tool_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Reports, through tool_usage(), what getopt_long() refused ('?' or ':'). Call getopt_long() with opterr = 0. */
int tool_bad_option(char **argv);

/* Finds the installation prefix (of PREFIX/bin/probing) through /proc/self/exe. Returns 0 or -errno. */
int tool_prefix(char *buf, size_t n);
/* Makes the path PREFIX/lib/probing/NAME. Returns 0; -ENOENT when there is no such file (buf gets the path all the same). */
int tool_lib(const char *name, char *buf, size_t n);

/* Makes `path` absolute (the file need not exist, but its directory must). Returns 0 or -errno. */
int tool_absolute(const char *path, char *buf, size_t n);

/* Formats for people: "214.3 KiB"; "31.4 s", "2 h 05 min"; "1,234,567". Each returns buf. */
#define TOOL_TEXT 32
const char *tool_size(uint64_t bytes, char buf[TOOL_TEXT]);
const char *tool_duration(double seconds, char buf[TOOL_TEXT]);
const char *tool_count(uint64_t n, char buf[TOOL_TEXT]);

/* For a program that opens sockets: opens those of standard input, output and error that are closed, so that no socket gets their numbers and is
 * written to instead. Writing to them fails as before. */
void tool_begin(void);
/* Ends a program whose exit code would be `code`: writes out what stdout holds. Returns the exit code: TOOL_FAILED, with a message, if something of
 * it could not be written. */
int tool_end(int code);

/* Returns CLOCK_MONOTONIC in seconds. */
double tool_seconds(void);

/* Parses a number from the command line: the whole text must be a number within lo..hi. Returns 0, -EINVAL or -ERANGE. */
int tool_number(const char *text, double lo, double hi, double *out);

/* The commands; their table is in main.c. */
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
/* For `probing -t PID inject|backtrace|eval ...`; argv is that of main(). */
int cmd_target(int argc, char **argv);

#endif
