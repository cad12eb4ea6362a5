/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_serve.h - PROBING_PORT=8080 probing-record ...: starts a `probing serve` beside the recording, which ends with it.
 *
 *     record_serve();        // prints on stderr where it listens, or why there is none, which never stops the recording
 *
 * PROBING_PORT is a port of 127.0.0.1 or HOST:PORT; when it is in use, one of the next 63 ports is taken. The server is a separate process,
 * outside of the program's process group, and ends with this one.
 */
#ifndef PROBING_TOOLS_RECORD_SERVE_H
#define PROBING_TOOLS_RECORD_SERVE_H

void record_serve(void);

#endif
