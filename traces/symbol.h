/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbol.h - readable names of native functions, for the parts that show them: the converter and the backtraces.
 *
 *     char *text = symbol_readable("_ZN2at3addEi.cold");   // "at::add(int)"; NULL: readable as it is
 *     if (symbol_is_eval(name)) ...                         // it runs Python frames (merge.h)
 *
 * C++ names are demangled when libstdc++.so.6 can be loaded. Any thread; not for signal handlers.
 */
#ifndef PROBING_TRACES_SYMBOL_H
#define PROBING_TRACES_SYMBOL_H

/* Returns the name, C++ demangled, without the suffixes of compilers and linkers ("@GLIBC_2.34", ".constprop.1",
 * ".cold"), malloc()ed; NULL when that is the same as `name`, or there is no memory. */
char *symbol_readable(const char *name);

/* Whether the name is that of CPython's eval loop, _PyEval_EvalFrameDefault, or of a part of it that the compiler split off. */
int symbol_is_eval(const char *name);

#endif
