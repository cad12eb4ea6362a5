/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the layout of the target's objects, and compares it with what the target says of itself. */
#include "object_layout.h"

#include "mem.h"
#include "offsets.h"

static const struct {
    uint32_t low, high; /* PY_VERSION_HEX, inclusive */
    struct object_fields fields;
} table[] = {
#include "object_table.inc"
};

#define MAX_WORDS 512 /* of _Py_DebugOffsets */

/* The table is of final releases, which never move a structure; this tells a build that is none of them. */
static int compare(const struct pywalk *pw, const struct object_fields *f) {
    const struct {
        int64_t word, value;
    } same[] = {
        {f->word_tp_name, f->tp_name},
        {f->word_tp_flags, f->tp_flags},
        {f->word_tuple_items, f->tuple_items},
        {f->word_list_items, f->list_items},
        {f->word_dict_keys, f->dict_keys},
        {f->word_dict_values, f->dict_values},
        {f->word_float_value, f->float_value},
        {f->word_int_size, f->int_size},
        {f->word_int_digits, f->int_digits},
        {f->word_argcount, f->co_argcount},
        {f->word_localsplusnames, f->co_localsplusnames},
        {f->word_localspluskinds, f->co_localspluskinds},
        {f->word_slots, f->fr_slots},
    };
    uint64_t word;
    int rc = 0;

    for (size_t i = 0; i < sizeof same / sizeof *same && rc == 0; i++) {
        if (same[i].word <= 0 || same[i].word >= f->words || f->words > MAX_WORDS)
            return -ENOTSUP;
        rc = mem_u64(pw, pw->runtime + (uint64_t)same[i].word * 8, &word);
        if (rc == 0 && word != (uint64_t)same[i].value)
            rc = -ENOTSUP;
    }
    return rc;
}

int pywalk_objects_init(struct pywalk_objects *ob, const struct pywalk *pw) {
    size_t i = 0;

    ob->pw = pw;
    ob->f = NULL;
    if (pw->mem.read == pywalk_read_direct)
        return -EINVAL;
    while (i < sizeof table / sizeof *table &&
           (pw->version < table[i].low || pw->version > table[i].high))
        i++;
    if (i == sizeof table / sizeof *table)
        return -ENOTSUP;
    ob->f = &table[i].fields;
    return ob->f->words != 0 ? compare(pw, ob->f) : 0;
}
