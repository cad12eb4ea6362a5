/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_show.h"

const char *sql_show(struct token t, struct token *last, struct token *table) {
    static const struct {
        const char *what, *sql;
    } shown[] = {{"tables", "SELECT * FROM information_schema.tables"},
                 {"views", "SELECT * FROM information_schema.tables WHERE table_type = 'VIEW'"},
                 {"all", "SELECT name, value FROM information_schema.df_settings"},
                 {"schemas", "SELECT DISTINCT table_schema FROM information_schema.tables"},
                 {"databases", "SELECT DISTINCT table_schema FROM information_schema.tables"}};
    struct token second = sql_after(t), third = sql_after(second);

    *table = (struct token){END, NULL, 0};
    *last = second;
    for (size_t i = 0; sql_is(t, "show") && i < sizeof shown / sizeof *shown; i++)
        if (sql_is(second, shown[i].what)) {
            int all_tables = sql_is(second, "all") && sql_is(third, "tables");
            *last = all_tables ? third : second;
            return shown[all_tables ? 0 : i].sql;
        }
    if (sql_is(t, "show") && sql_is(second, "columns") &&
        (sql_is(third, "from") || sql_is(third, "in")))
        *table = sql_after(third);
    else if (sql_is(t, "describe") || sql_is(t, "desc"))
        *table = sql_is(second, "table") ? third : second;
    else
        return NULL;
    for (struct token dot = sql_after(*table); dot.kind == SIGN && *dot.p == '.';
         dot = sql_after(*table))
        *table = sql_after(dot); /* python.torch_trace: the last name counts */
    *last = *table;
    return !sql_is(*table, "select") &&
                   (table->kind == WORD || table->kind == QUOTED || table->kind == STRING)
               ? "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
               : NULL;
}

void sql_show_table(FILE *f, struct token t) {
    int quoted = t.kind != WORD;

    fputs(" WHERE table_name = '", f);
    for (size_t i = (size_t)quoted; i < t.n - (size_t)quoted; i++) {
        if (t.p[i] == '\'')
            fputc('\'', f);
        fputc(t.p[i], f);
    }
    fputs("' COLLATE NOCASE", f);
}
