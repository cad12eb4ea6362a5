/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one task or one coroutine: everything is checked before it is trusted. */
#include "task_read.h"

#include <stdio.h>

static const struct row {
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
    const struct row *row = PYWALK_ROW(table, ob->pw->version);

    tr->layout = PYWALK_ROW(layouts, ob->pw->version);
    if (row == NULL || tr->layout == NULL)
        return -ENOTSUP;
    tr->f = &row->fields;
    obj_begin_reads(&tr->r, ob, reads);
    memset(tr->types, 0, sizeof tr->types);
    tr->r.known = tr->types;
    return 0;
}

enum future_kind task_kind(struct task_reader *tr, uint64_t addr, struct object_type *t) {
    enum future_kind kind = FUTURE_NONE;
    struct object_type base;

    if (obj_type_of(&tr->r, addr, t)) {
        base = *t;
        for (unsigned guard = 0; guard < 32 && kind == FUTURE_NONE; guard++) {
            if (strcmp(base.name, "_asyncio.Task") == 0 && base.basicsize != tr->layout->size)
                return FUTURE_NONE;
            kind = strcmp(base.name, "_asyncio.Task") == 0     ? FUTURE_TASK_C
                   : strcmp(base.name, "_asyncio.Future") == 0 ? FUTURE_C
                                                               : FUTURE_NONE;
            if (base.base == 0 || !obj_type_read(&tr->r, base.base, &base))
                break;
        }
        obj_error(&tr->r);
        if (kind == FUTURE_NONE && obj_type_is(&tr->r, t, "asyncio.tasks", "Task"))
            kind = FUTURE_TASK_PYTHON;
    }
    obj_error(&tr->r);
    return kind;
}

/* Reads a task's name: a str, or from 3.12 on also the number in "Task-N". */
static void read_name(struct task_reader *tr, uint64_t name, struct pywalk_task *out) {
    const struct pywalk_objects ob = {&tr->r.pw, tr->r.f};
    struct object_type t;
    char number[32];

    if (!obj_type_of(&tr->r, name, &t))
        strcpy(out->name, "?");
    else if (t.kind == KIND_STR)
        pywalk_str(&tr->r.pw, name, out->name, sizeof out->name);
    else if (t.kind == KIND_INT && pywalk_repr(&ob, name, NULL, number, sizeof number) > 0)
        snprintf(out->name, sizeof out->name, "Task-%s", number);
    obj_error(&tr->r);
}

/* Reads a task of the C implementation; false when it is done. */
static bool read_c(struct task_reader *tr, uint64_t addr, struct pywalk_task *out, uint64_t *name) {
    const struct task_layout *l = tr->layout;

    if (obj_u32(&tr->r, addr + l->state) != 0) /* 0: pending */
        return false;
    out->coroutine = obj_u64(&tr->r, addr + l->coroutine);
    out->waits_for = obj_u64(&tr->r, addr + l->waiter);
    *name = obj_u64(&tr->r, addr + l->name);
    return true;
}

static bool read_python(struct task_reader *tr, uint64_t addr, const struct object_type *t,
                        struct pywalk_task *out, uint64_t *name) {
    struct object_type its;
    uint64_t state;
    char text[16];

    if (obj_attrs_find(&tr->r, addr, t, "_state", &state) &&
        pywalk_str(&tr->r.pw, state, text, sizeof text) > 0 && strcmp(text, "PENDING") != 0)
        return false;
    if (!obj_attrs_find(&tr->r, addr, t, "_coro", &out->coroutine))
        return false;
    if (!obj_attrs_find(&tr->r, addr, t, "_fut_waiter", &out->waits_for) ||
        task_kind(tr, out->waits_for, &its) == FUTURE_NONE)
        out->waits_for = 0;
    if (!obj_attrs_find(&tr->r, addr, t, "_name", name))
        *name = 0;
    return true;
}

bool task_read(struct task_reader *tr, uint64_t addr, struct pywalk_task *out) {
    struct pywalk_frame frame;
    struct object_type t;
    uint64_t name = 0, awaits;
    int state = 0;
    bool open = false;

    memset(out, 0, sizeof *out);
    out->task = addr;
    enum future_kind kind = task_kind(tr, addr, &t);
    if (kind == FUTURE_TASK_C)
        open = read_c(tr, addr, out, &name);
    else if (kind == FUTURE_TASK_PYTHON)
        open = read_python(tr, addr, &t, out, &name);
    obj_ok(&tr->r, pywalk_plausible(out->coroutine) &&
                       (out->waits_for == 0 || pywalk_plausible(out->waits_for)));
    if (obj_error(&tr->r) != 0 || !open)
        return false;
    read_name(tr, name, out);
    out->state = out->waits_for != 0 ? PYWALK_TASK_WAITING : PYWALK_TASK_READY;
    if (task_coroutine(tr, out->coroutine, &frame, &state, &awaits) > 0 &&
        (state == tr->f->state_executing || state == tr->f->state_created))
        out->state = state == tr->f->state_executing ? PYWALK_TASK_RUNNING : PYWALK_TASK_CREATED;
    return true;
}

void task_each_in_set(struct task_reader *tr, uint64_t addr, int (*fn)(void *ctx, uint64_t element),
                      void *ctx) {
    struct set_iter it;
    uint64_t element;

    if (obj_expect(&tr->r, addr, KIND_SET) && obj_set_open(&tr->r, addr, &it)) {
        do
            element = obj_set_next(&tr->r, &it);
        while (element != 0 && fn(ctx, element) == 0);
    }
    obj_error(&tr->r);
}

/* The awaited object without wrappers that only stand between two coroutines. */
static uint64_t unwrap(struct task_reader *tr, uint64_t addr) {
    static const char *const wrappers[] = {"coroutine_wrapper", "async_generator_asend",
                                           "async_generator_athrow", "anext_awaitable"};
    struct object_type t;

    for (unsigned depth = 0; depth < 4 && addr != 0 && obj_type_of(&tr->r, addr, &t); depth++) {
        size_t i = 0;
        while (i < sizeof wrappers / sizeof *wrappers && strcmp(t.name, wrappers[i]) != 0)
            i++;
        if (i == sizeof wrappers / sizeof *wrappers)
            return addr;
        /* Each wrapper holds it right behind the object's head. */
        addr = obj_pointer(&tr->r, addr + tr->r.f->ob_head);
    }
    obj_error(&tr->r);
    return addr;
}

/* Whether the frame is suspended in an await, or in `yield from`: after a plain yield something else lies on its stack. Up to 3.12
 * the argument of the instruction after the yield, RESUME, says so: 1 after a yield, 2 after `yield from`, 3 after an await. */
static bool is_awaiting(struct task_reader *tr, uint64_t frame, int state) {
    const struct pywalk_fields *f = &pywalk_offsets(&tr->r.pw)->f;
    uint8_t next[2];

    if (tr->f->state_awaits != 0)
        return state >= tr->f->state_awaits && state < tr->f->state_executing;
    obj_get(&tr->r, obj_u64(&tr->r, frame + f->fr_instr) + 2, next, sizeof next);
    return obj_error(&tr->r) == 0 && (next[1] & 3) >= 2;
}

/* What the generator with this frame awaits: it is on top of its stack. */
static uint64_t awaited(struct task_reader *tr, const struct pywalk_frame *frame) {
    const struct pywalk_offsets *o = pywalk_offsets(&tr->r.pw);
    uint64_t slots = frame->frame + o->f.fr_span, at, object;
    uint32_t locals = obj_u32(&tr->r, frame->code + o->f.co_nlocalsplus);
    int32_t top;

    if (tr->f->stack_pointer != 0) {
        /* from 3.15 on the value to be sent to it lies above it */
        at = obj_pointer(&tr->r, frame->frame + tr->f->stack_pointer) -
             (tr->r.pw.version >= PYWALK_3(15) ? 16 : 8);
    } else {
        top = (int32_t)obj_u32(&tr->r, frame->frame + tr->f->stack_top);
        obj_ok(&tr->r, top >= 1);
        at = slots + ((uint64_t)top - 1) * 8; /* any number, in damaged memory */
    }
    obj_ok(&tr->r, locals <= 1 << 20 && at >= slots + locals * 8ull && at - slots <= 1 << 24);
    object = obj_u64(&tr->r, at) & ~(uint64_t)o->tag_bits;
    return obj_error(&tr->r) == 0 && pywalk_plausible(object) ? unwrap(tr, object) : 0;
}

int task_coroutine(struct task_reader *tr, uint64_t addr, struct pywalk_frame *frame, int *state,
                   uint64_t *awaits) {
    const struct pywalk_offsets *o = pywalk_offsets(&tr->r.pw);
    uint64_t at = addr + tr->f->gen_frame, type;
    struct object_type t;

    *awaits = 0;
    if (!obj_type_of(&tr->r, addr, &t) || t.kind != KIND_GENERATOR)
        return obj_error(&tr->r);
    *state = (int8_t)obj_u8(&tr->r, addr + tr->f->gen_state);
    if (tr->r.rc != 0 || *state >= tr->f->state_cleared || *state > tr->f->state_executing)
        return obj_error(&tr->r);
    frame->code = obj_u64(&tr->r, at + o->f.fr_code) & ~(uint64_t)o->tag_bits;
    obj_ok(&tr->r, pywalk_plausible(frame->code));
    int64_t lasti =
        (int64_t)(obj_u64(&tr->r, at + o->f.fr_instr) - (frame->code + o->f.co_bytecode));
    type = obj_u64(&tr->r, frame->code + o->f.ob_type);
    if (!obj_ok(&tr->r, lasti >= -2 && lasti <= INT32_MAX && (lasti & 1) == 0 &&
                            (tr->r.pw.code_type == 0 || type == tr->r.pw.code_type)))
        return obj_error(&tr->r);
    frame->frame = at;
    frame->lasti = lasti < 0 || *state == tr->f->state_created ? -1 : (int32_t)lasti;
    frame->flags = PYWALK_GENERATOR;
    if (*state != tr->f->state_executing && *state != tr->f->state_created &&
        is_awaiting(tr, at, *state))
        *awaits = awaited(tr, frame);
    return 1;
}
