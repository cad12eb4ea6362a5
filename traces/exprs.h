/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exprs.h - the list of the program's variables to record: "loss@train,acc1@train,self.lr@Trainer.fit".
 *
 *     struct exprs x = {.n = 0};
 *     char why[SETTING_WHY];
 *     if (exprs_parse(text, &x, why, sizeof why)) error(why);        // adds to x
 *     x.expr[0].name, x.expr[0].func
 *
 * NAME@FUNCTION: NAME is a variable, or one of its attributes after a dot; FUNCTION is a function's name, or its
 * qualified name (Class.method), or <module> for a script's top level. Pure; used by the agent and by the tools.
 */
#ifndef PROBING_TRACES_EXPRS_H
#define PROBING_TRACES_EXPRS_H

#include <stddef.h>

#define EXPRS_MAX  32
#define EXPRS_TEXT 96
#define EXPRS_HELP "NAME@FUNCTION,... (at most 32; each name at most 95 bytes)"

struct exprs {
    unsigned n;
    struct {
        char name[EXPRS_TEXT], func[EXPRS_TEXT];
    } expr[EXPRS_MAX];
};

/* Adds the expressions of `text` ("" has none) that x does not have yet. Returns 0, or -EINVAL with a message for
 * people in `why`; x is unchanged then. */
int exprs_parse(const char *text, struct exprs *x, char *why, size_t n);
/* Checks `text` as exprs_parse() does; has the type of a check in settings.def. */
int exprs_check(const char *text, char *why, size_t n);

#endif
