/* SPDX-License-Identifier: Apache-2.0 */
/* One task, one coroutine: everything is checked before it is believed. */
#include "task_read.h"

#include <stdio.h>

#define MAX_SET (1u << 20) /* slots of a set */
#define BLOCK   512        /* bytes of a set's table read at once; a page holds so many of them */

static const struct {
    uint32_t low, high; /* PY_VERSION_HEX, inclusive */
    struct task_fields fields;
} table[] = {
#include "task_table.inc"
};

static const struct task_layout layouts[] = {
    {PYWALK_3(11), PYWALK_3(13) - 1, 176, 24, 40, 88, 128, 136, 144, 0, 0, 0},
    {PYWALK_3(13), PYWALK_3(14) - 1, 144, 24, 40, 96, 112, 120, 128, 0, 0, 0},
    {PYWALK_3(14), PYWALK_3(16) - 1, 168, 24, 40, 104, 120, 128, 136, 96, 109, 152},
};

int task_reader_init(struct task_reader *tr, const struct pywalk_objects *ob, uint32_t reads) {
    const struct pywalk_limits limits = {.reads = reads};
    const uint32_t version = ob->pw->version;
    size_t i = 0, k = 0;

    while (i < sizeof table / sizeof *table && (version < table[i].low || version > table[i].high))
        i++;
    while (k < sizeof layouts / sizeof *layouts &&
           (version < layouts[k].low || version > layouts[k].high))
        k++;
    if (i == sizeof table / sizeof *table || k == sizeof layouts / sizeof *layouts)
        return -ENOTSUP;
    tr->f = &table[i].fields;
    tr->layout = &layouts[k];
    memset(tr->type, 0, sizeof tr->type);
    obj_begin(&tr->r, ob, &limits, tr->none, sizeof tr->none);
    return 0;
}

int task_type_of(struct task_reader *tr, uint64_t addr, struct object_type *t) {
    struct object_type *slot;
    uint64_t type = 0;
    int rc = pywalk_plausible(addr) ? get_u64(&tr->r, addr + (uint64_t)tr->r.f->ob_head - 8, &type)
                                    : -EBADMSG;

    if (rc != 0)
        return rc;
    slot = &tr->type[(type >> 5) % TASK_TYPES];
    if (slot->addr != type || type == 0) {
        rc = obj_type_of(&tr->r, addr, t);
        if (rc != 0)
            return rc;
        *slot = *t;
    }
    *t = *slot;
    return 0;
}

enum future_kind task_kind(struct task_reader *tr, uint64_t addr, struct object_type *t) {
    struct object_type base;

    if (task_type_of(tr, addr, t) != 0)
        return FUTURE_NONE;
    base = *t;
    for (unsigned guard = 0; guard < 32; guard++) {
        if (strcmp(base.name, "_asyncio.Task") == 0)
            return base.basicsize == tr->layout->size ? FUTURE_TASK_C : FUTURE_NONE;
        if (strcmp(base.name, "_asyncio.Future") == 0)
            return FUTURE_C;
        if (base.base == 0 || obj_type_read(&tr->r, base.base, &base) != 0)
            break;
    }
    return obj_type_is(&tr->r, t, "asyncio.tasks", "Task") ? FUTURE_TASK_PYTHON : FUTURE_NONE;
}

/* Its name is a str, or from 3.12 on the number in "Task-N". */
static void read_name(struct task_reader *tr, const struct pywalk_objects *ob, uint64_t name,
                      struct pywalk_task *out) {
    struct object_type t;
    char number[32];

    if (task_type_of(tr, name, &t) != 0)
        strcpy(out->name, "?");
    else if (t.kind == KIND_STR)
        pywalk_str(&tr->r.pw, name, out->name, sizeof out->name);
    else if (t.kind == KIND_INT && pywalk_repr(ob, name, NULL, number, sizeof number) > 0)
        snprintf(out->name, sizeof out->name, "Task-%s", number);
}

int task_read(struct task_reader *tr, uint64_t addr, struct pywalk_task *out) {
    const struct task_layout *l = tr->layout;
    const struct pywalk_objects ob = {&tr->r.pw, tr->r.f};
    struct pywalk_frame frame;
    struct object_type t;
    uint64_t name = 0, awaits;
    uint8_t bytes[256];
    int rc = 0, state = 0;

    memset(out, 0, sizeof *out);
    out->task = addr;
    switch (task_kind(tr, addr, &t)) {
    case FUTURE_TASK_C:
        rc = get(&tr->r, addr, bytes, l->size);
        if (rc != 0)
            return rc;
        if (load32(bytes + l->state) != 0) /* 0: pending */
            return 0;
        out->coroutine = load64(bytes + l->coroutine);
        out->waits_for = load64(bytes + l->waiter);
        name = load64(bytes + l->name);
        break;
    case FUTURE_TASK_PYTHON: {
        uint64_t word;
        char text[16];
        if (obj_attrs_find(&tr->r, addr, &t, "_state", &word) == 0 &&
            pywalk_str(&tr->r.pw, word, text, sizeof text) > 0 && strcmp(text, "PENDING") != 0)
            return 0;
        if (obj_attrs_find(&tr->r, addr, &t, "_coro", &out->coroutine) != 0)
            return 0;
        if (obj_attrs_find(&tr->r, addr, &t, "_fut_waiter", &out->waits_for) != 0 ||
            task_kind(tr, out->waits_for, &t) == FUTURE_NONE)
            out->waits_for = 0;
        if (task_type_of(tr, addr, &t) != 0 ||
            obj_attrs_find(&tr->r, addr, &t, "_name", &name) != 0)
            name = 0;
        break;
    }
    default:
        return 0;
    }
    if (!pywalk_plausible(out->coroutine) ||
        (out->waits_for != 0 && !pywalk_plausible(out->waits_for)))
        return -EBADMSG;
    read_name(tr, &ob, name, out);
    rc = task_coroutine(tr, out->coroutine, &frame, &state, &awaits);
    if (rc > 0)
        out->state = state == tr->f->state_executing ? PYWALK_TASK_RUNNING
                     : state == tr->f->state_created ? PYWALK_TASK_CREATED
                     : out->waits_for != 0           ? PYWALK_TASK_WAITING
                                                     : PYWALK_TASK_READY;
    else
        out->state = out->waits_for != 0 ? PYWALK_TASK_WAITING : PYWALK_TASK_READY;
    return 1;
}

int task_each_in_set(struct task_reader *tr, uint64_t addr, int (*fn)(void *ctx, uint64_t element),
                     void *ctx) {
    const struct object_fields *f = tr->r.f;
    struct object_type t;
    uint64_t mask = 0, entries = 0;
    int rc = task_type_of(tr, addr, &t);

    if (rc == 0 && t.kind != KIND_SET && t.kind != KIND_FROZENSET)
        rc = -EBADMSG;
    if (rc == 0)
        rc = get_u64(&tr->r, addr + (uint64_t)f->set_mask, &mask);
    if (rc == 0)
        rc = obj_get_pointer(&tr->r, addr + (uint64_t)f->set_table, &entries);
    if (rc == 0 && (mask >= MAX_SET || (mask & (mask + 1)) != 0 || entries == 0))
        rc = -EBADMSG;
    /* BLOCK by BLOCK, none across the end of a page: the table may end where memory does. */
    uint64_t at = entries, end = entries + (mask + 1) * (uint64_t)f->set_entry;
    while (rc == 0 && at < end) {
        uint8_t block[BLOCK];
        size_t n = BLOCK - at % BLOCK;
        if (n < (size_t)f->set_entry) { /* one that lies across */
            n = (size_t)f->set_entry;
        } else {
            n -= n % (size_t)f->set_entry;
        }
        n = n < end - at ? n : (size_t)(end - at);
        rc = get(&tr->r, at, block, n);
        for (size_t i = 0; rc == 0 && i + (size_t)f->set_entry <= n; i += (size_t)f->set_entry) {
            uint64_t key = load64(block + i + f->set_key);
            int64_t hash = (int64_t)load64(block + i + f->set_hash);
            /* -1: what was removed */
            if (key != 0 && hash != -1 && pywalk_plausible(key) && fn(ctx, key) != 0)
                return 0;
        }
        at += n;
    }
    return rc;
}

/* The object that is awaited, where it only stands between two coroutines. */
static uint64_t unwrap(struct task_reader *tr, uint64_t addr) {
    static const char *const wrappers[] = {"coroutine_wrapper", "async_generator_asend",
                                           "async_generator_athrow", "anext_awaitable"};
    struct object_type t;
    uint64_t inner;

    for (unsigned depth = 0; depth < 4 && task_type_of(tr, addr, &t) == 0; depth++) {
        size_t i = 0;
        while (i < sizeof wrappers / sizeof *wrappers && strcmp(t.name, wrappers[i]) != 0)
            i++;
        if (i == sizeof wrappers / sizeof *wrappers)
            return addr;
        /* Each holds it right behind its head. */
        if (obj_get_pointer(&tr->r, addr + (uint64_t)tr->r.f->ob_head, &inner) != 0 || inner == 0)
            return 0;
        addr = inner;
    }
    return addr;
}

/* Is it suspended in an await, or in `yield from`? After a plain yield what lies on its stack is something else. To 3.12 the
 * instruction behind the yield tells, RESUME: 1 after a yield, 2 after `yield from`, 3 after an await. */
static bool is_awaiting(struct task_reader *tr, uint64_t frame, int state) {
    const struct pywalk_fields *f = &pywalk_offsets(&tr->r.pw)->f;
    uint64_t instr;
    uint8_t next[2];

    if (tr->f->state_awaits != 0)
        return state >= tr->f->state_awaits && state < tr->f->state_executing;
    return get_u64(&tr->r, frame + f->fr_instr, &instr) == 0 &&
           get(&tr->r, instr + 2, next, sizeof next) == 0 && (next[1] & 3) >= 2;
}

/* What the generator that frame is in awaits: on top of its stack. */
static uint64_t awaited(struct task_reader *tr, const struct pywalk_frame *frame) {
    const struct pywalk_offsets *o = pywalk_offsets(&tr->r.pw);
    uint64_t slots = frame->frame + o->f.fr_span, at, object = 0;
    uint32_t locals;
    int32_t top;

    if (get(&tr->r, frame->code + o->f.co_nlocalsplus, &locals, sizeof locals) != 0 ||
        locals > 1 << 20)
        return 0;
    if (tr->f->stack_pointer != 0) {
        /* from 3.15 on what will be sent to it lies above */
        uint64_t back = tr->r.pw.version >= PYWALK_3(15) ? 16 : 8;
        if (obj_get_pointer(&tr->r, frame->frame + tr->f->stack_pointer, &at) != 0)
            return 0;
        at -= back;
    } else {
        if (get(&tr->r, frame->frame + tr->f->stack_top, &top, sizeof top) != 0 || top < 1)
            return 0;
        at = slots + (uint64_t)(top - 1) * 8;
    }
    if (at < slots + locals * 8ull || at - slots > 1 << 24 || get_u64(&tr->r, at, &object) != 0)
        return 0;
    object &= ~(uint64_t)o->tag_bits;
    return pywalk_plausible(object) ? unwrap(tr, object) : 0;
}

int task_coroutine(struct task_reader *tr, uint64_t addr, struct pywalk_frame *frame, int *state,
                   uint64_t *awaits) {
    const struct pywalk_offsets *o = pywalk_offsets(&tr->r.pw);
    uint64_t at = addr + tr->f->gen_frame, instr, type;
    struct object_type t;
    int8_t its;
    int rc = task_type_of(tr, addr, &t);

    *awaits = 0;
    if (rc != 0 || t.kind != KIND_GENERATOR)
        return rc;
    rc = get(&tr->r, addr + tr->f->gen_state, &its, 1);
    if (rc != 0)
        return rc;
    *state = its;
    if (its >= tr->f->state_cleared || (its > tr->f->state_executing))
        return 0;
    rc = get_u64(&tr->r, at + o->f.fr_code, &frame->code);
    if (rc == 0)
        rc = get_u64(&tr->r, at + o->f.fr_instr, &instr);
    frame->code &= ~(uint64_t)o->tag_bits;
    if (rc == 0 && !pywalk_plausible(frame->code))
        rc = -EBADMSG;
    if (rc == 0)
        rc = get_u64(&tr->r, frame->code + o->f.ob_type, &type);
    if (rc != 0)
        return rc;
    int64_t lasti = (int64_t)(instr - (frame->code + o->f.co_bytecode));
    if (lasti < -2 || lasti > INT32_MAX || (lasti & 1) != 0 ||
        (tr->r.pw.code_type != 0 && type != tr->r.pw.code_type))
        return -EBADMSG;
    frame->frame = at;
    frame->lasti = lasti < 0 || its == tr->f->state_created ? -1 : (int32_t)lasti;
    frame->flags = PYWALK_GENERATOR;
    if (its != tr->f->state_executing && its != tr->f->state_created && is_awaiting(tr, at, its))
        *awaits = awaited(tr, frame);
    return 1;
}
