/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_stop.h - whether a long call into the library is to end now, because a handler of a signal (Ctrl-C) in Python raised an exception.
 *
 *     source_stopped = arrow_stopped;      // once: pipes and searches of damaged files then look, too
 *     while (...)
 *         if (arrow_stopped())
 *             return arrow_fail(notes, -EINTR, "interrupted");
 *
 * Python runs the handlers of signals between its own instructions, in its main thread alone: while that thread is in a call of ours, nothing
 * would happen. So arrow_stopped() lets the handlers run, some times a second at most. If one raises an exception, the call ends with -EINTR, and
 * Python raises that exception as soon as the call has returned to it, whoever called: pyarrow and DuckDB, too. Without Python in the process, and
 * in other threads, nothing is looked at, and the result is 0.
 */
#ifndef PROBING_CONVERTER_ARROW_STOP_H
#define PROBING_CONVERTER_ARROW_STOP_H

int arrow_stopped(void);

#endif
