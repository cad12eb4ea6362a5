/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut_short.h - survives the SIGBUS that reading a mapped file raises when the owner of the file truncates it meanwhile.
 *
 *     cut_short_install();                      // once, in a program of ours; a library must not change its program's signals
 *     if (cut_short_try(fn, arg)) ...           // fn was aborted in the middle: nothing that it had open may be used again
 *
 * fn must hold no lock. cut_short_try() may be called by any thread, and be nested. Where nothing is installed it just calls fn.
 */
#ifndef PROBING_CONVERTER_CUT_SHORT_H
#define PROBING_CONVERTER_CUT_SHORT_H

void cut_short_install(void);
/* Returns 1 when fn was aborted, else 0. */
int cut_short_try(void (*fn)(void *arg), void *arg);

#endif
