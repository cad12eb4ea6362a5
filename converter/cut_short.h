/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut_short.h - goes on where a file that is mapped was cut short meanwhile (SIGBUS), by whoever owns it.
 *
 *     cut_short_install();                      // once, in a program of ours: a library leaves its program's signals alone
 *     if (cut_short_try(fn, arg)) ...           // fn ended in the middle: nothing that it had open may be used again
 *
 * fn holds no lock. cut_short_try(): any thread, and within another one. Where nothing is installed it calls fn, and that is all.
 */
#ifndef PROBING_CONVERTER_CUT_SHORT_H
#define PROBING_CONVERTER_CUT_SHORT_H

void cut_short_install(void);
/* 0; 1: it was. */
int cut_short_try(void (*fn)(void *arg), void *arg);

#endif
