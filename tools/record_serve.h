/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_serve.h - PROBING_PORT=8080 probing-record ...: a `probing serve` beside the recording, for as long as it goes on.
 *
 *     record_serve();        // says on stderr where it is, or why it is not there: never a reason not to run
 *
 * PROBING_PORT is a port of 127.0.0.1 or HOST:PORT; where it is taken, one of the next 63. The server is a process of its own,
 * outside of the program's process group, and ends with this one.
 */
#ifndef PROBING_TOOLS_RECORD_SERVE_H
#define PROBING_TOOLS_RECORD_SERVE_H

void record_serve(void);

#endif
