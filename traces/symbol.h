/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbol.h - names of native functions, for those who show them: the converter and the backtraces.
 *
 *     char *text = symbol_readable("_ZN2at3addEi.cold");   // "at::add(int)"; NULL: readable as it is
 *     if (symbol_is_eval(name)) ...                         // it runs Python frames (merge.h)
 *
 * C++ names are demangled when libstdc++.so.6 can be loaded. Any thread; not for signal handlers.
 */
#ifndef PROBING_TRACES_SYMBOL_H
#define PROBING_TRACES_SYMBOL_H

/* The name without what compilers and linkers put behind it ("@GLIBC_2.34", ".constprop.1", ".cold"), C++ demangled:
 * malloc()ed. NULL when that is the name itself, or there is no memory. */
char *symbol_readable(const char *name);

/* 1: it is CPython's eval loop, _PyEval_EvalFrameDefault, or a part that the compiler split off. */
int symbol_is_eval(const char *name);

#endif
