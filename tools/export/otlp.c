/* SPDX-License-Identifier: Apache-2.0 */
/*
 * otlp.c - writes profiles in OpenTelemetry's protocol: one message ProfilesData, for a file or the body of a request.
 *
 * HOW IT WORKS: each process is a resource. Its samples, added up by thread, step and stack, are three profiles: their number, their time
 * on a CPU, and all their time. If there are very many, the process is several resources with the same attributes. All refer to the
 * dictionary of distinct strings, functions, frames and stacks, which is built in memory meanwhile and written at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frames.h"
#include "profile.h"

/*
 * Numbers of fields: github.com/open-telemetry/opentelemetry-proto, opentelemetry/proto/profiles/v1development/profiles.proto,
 * common/v1/common.proto and resource/v1/resource.proto, as pip's opentelemetry-proto 1.45 has them.
 */
enum data_field { DATA_RESOURCE_PROFILES = 1, DATA_DICTIONARY = 2 };
enum dictionary_field {
    DICTIONARY_MAPPING_TABLE = 1,
    DICTIONARY_LOCATION_TABLE = 2,
    DICTIONARY_FUNCTION_TABLE = 3,
    DICTIONARY_LINK_TABLE = 4,
    DICTIONARY_STRING_TABLE = 5,
    DICTIONARY_ATTRIBUTE_TABLE = 6,
    DICTIONARY_STACK_TABLE = 7,
};
enum resource_profiles_field {
    RESOURCE_PROFILES_RESOURCE = 1,
    RESOURCE_PROFILES_SCOPE_PROFILES = 2
};
enum resource_field { RESOURCE_ATTRIBUTES = 1 };
enum key_value_field { KEY_VALUE_KEY = 1, KEY_VALUE_VALUE = 2 };
enum any_value_field { ANY_STRING = 1, ANY_INT = 3 };
enum scope_profiles_field { SCOPE_PROFILES_SCOPE = 1, SCOPE_PROFILES_PROFILES = 2 };
enum scope_field { SCOPE_NAME = 1, SCOPE_VERSION = 2 };
enum profile_field {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLES = 2,
    PROFILE_TIME_UNIX_NANO = 3,
    PROFILE_DURATION_NANO = 4,
    PROFILE_PERIOD_TYPE = 5,
    PROFILE_PERIOD = 6,
    PROFILE_PROFILE_ID = 7,
};
enum value_type_field { VALUE_TYPE_TYPE_STRINDEX = 1, VALUE_TYPE_UNIT_STRINDEX = 2 };
enum sample_field { SAMPLE_STACK_INDEX = 1, SAMPLE_ATTRIBUTE_INDICES = 2, SAMPLE_VALUES = 4 };
enum mapping_field { MAPPING_FILENAME_STRINDEX = 4, MAPPING_ATTRIBUTE_INDICES = 5 };
enum stack_field { STACK_LOCATION_INDICES = 1 };
enum location_field {
    LOCATION_MAPPING_INDEX = 1,
    LOCATION_LINES = 3,
    LOCATION_ATTRIBUTE_INDICES = 4,
};
enum line_field { LINE_FUNCTION_INDEX = 1, LINE_LINE = 2 };
enum function_field {
    FUNCTION_NAME_STRINDEX = 1,
    FUNCTION_SYSTEM_NAME_STRINDEX = 2,
    FUNCTION_FILENAME_STRINDEX = 3,
    FUNCTION_START_LINE = 4,
};
enum attribute_field { ATTRIBUTE_KEY_STRINDEX = 1, ATTRIBUTE_VALUE = 2 };

struct otlp {
    struct export *x;
    struct pb b, dict; /* dict: the fields of ProfilesDictionary so far */
    struct pb_strings strings;
    struct pb_names attributes;
    struct export_frames frames;
    uint32_t *function, *location,
        *stack; /* by number in the database: place in the table; 0: not there yet */
    uint32_t functions, locations, nstacks; /* last places in the tables */
    uint32_t chunks;
};

static void put_any(struct pb *b, unsigned field, const char *text, int64_t number) {
    size_t m = pb_begin(b, field);

    if (text)
        pb_text(b, ANY_STRING, text);
    else
        pb_int(b, ANY_INT, number);
    pb_end(b, m);
}

/* Returns the place of an attribute in its table, added if it is new. The value is `text` or, if that is NULL, the number. */
static uint32_t attribute(struct otlp *o, const char *key, const char *text, int64_t number) {
    char name[600];
    int is_new;

    if (text)
        snprintf(name, sizeof name, "%s=%s", key, text);
    else
        snprintf(name, sizeof name, "%s:%lld", key, (long long)number);
    uint32_t place = pb_name(&o->attributes, name, &is_new);
    if (is_new) {
        uint32_t k = pb_string(&o->strings, key);
        size_t m = pb_begin(&o->dict, DICTIONARY_ATTRIBUTE_TABLE);
        pb_uint(&o->dict, ATTRIBUTE_KEY_STRINDEX, k);
        put_any(&o->dict, ATTRIBUTE_VALUE, text, number);
        pb_end(&o->dict, m);
    }
    return place;
}

static uint32_t mapping(struct otlp *o, const char *path, int *rc) {
    struct export_file file;
    uint32_t build_id = 0;

    *rc = export_frames_file(&o->frames, path, &file);
    if (*rc < 0 || !file.is_new)
        return file.number;
    if (*file.build_id)
        build_id = attribute(o, "process.executable.build_id.gnu", file.build_id, 0);
    uint32_t name = pb_string(&o->strings, path);
    size_t m = pb_begin(&o->dict, DICTIONARY_MAPPING_TABLE);
    pb_uint(&o->dict, MAPPING_FILENAME_STRINDEX, name);
    if (build_id) {
        size_t list = pb_begin(&o->dict, MAPPING_ATTRIBUTE_INDICES);
        pb_packed(&o->dict, build_id);
        pb_end(&o->dict, list);
    }
    pb_end(&o->dict, m);
    return file.number;
}

static uint32_t function(struct otlp *o, const struct export_frame *f) {
    if (o->function[f->function])
        return o->function[f->function];
    uint32_t name = pb_string(&o->strings, f->name), file = pb_string(&o->strings, f->file);
    size_t m = pb_begin(&o->dict, DICTIONARY_FUNCTION_TABLE);
    pb_uint(&o->dict, FUNCTION_NAME_STRINDEX, name);
    pb_uint(&o->dict, FUNCTION_SYSTEM_NAME_STRINDEX, name);
    pb_uint(&o->dict, FUNCTION_FILENAME_STRINDEX, file);
    pb_int(&o->dict, FUNCTION_START_LINE, f->firstline);
    pb_end(&o->dict, m);
    return o->function[f->function] = ++o->functions;
}

static int put_location(struct otlp *o, const struct export_frame *f) {
    int rc = 0;

    if (o->location[f->id])
        return 0;
    uint32_t func = function(o, f), map = mapping(o, f->module, &rc),
             type = attribute(o, "profile.frame.type", f->native ? "native" : "cpython", 0);
    size_t m = pb_begin(&o->dict, DICTIONARY_LOCATION_TABLE);
    pb_uint(&o->dict, LOCATION_MAPPING_INDEX, map);
    size_t line = pb_begin(&o->dict, LOCATION_LINES);
    pb_uint(&o->dict, LINE_FUNCTION_INDEX, func);
    pb_int(&o->dict, LINE_LINE, f->line);
    pb_end(&o->dict, line);
    size_t list = pb_begin(&o->dict, LOCATION_ATTRIBUTE_INDICES);
    pb_packed(&o->dict, type);
    pb_end(&o->dict, list);
    pb_end(&o->dict, m);
    o->location[f->id] = ++o->locations;
    return rc;
}

/* Adds a stack to the table if it is not there yet. */
static int put_stack(struct otlp *o, int64_t stack) {
    const struct export_frame *const *frame;
    int64_t number = export_frames_stack(&o->frames, stack);
    size_t n;

    if (o->stack[number])
        return 0;
    int rc = export_frames_of(&o->frames, stack, &frame, &n);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = put_location(o, frame[i]);
    size_t m = pb_begin(&o->dict, DICTIONARY_STACK_TABLE),
           list = pb_begin(&o->dict, STACK_LOCATION_INDICES);
    while (n-- > 0) /* the innermost first */
        pb_packed(&o->dict, o->location[frame[n]->id]);
    pb_end(&o->dict, list);
    pb_end(&o->dict, m);
    o->stack[number] = ++o->nstacks;
    return rc;
}

/* ---- resources ---- */

static void put_attribute(struct pb *b, const char *key, const char *text, int64_t number) {
    if (text && !*text)
        return;
    size_t m = pb_begin(b, RESOURCE_ATTRIBUTES);
    pb_text(b, KEY_VALUE_KEY, key);
    put_any(b, KEY_VALUE_VALUE, text, number);
    pb_end(b, m);
}

/* Writes a process's attributes, with the names of OpenTelemetry's conventions where there are some. */
static void put_resource(struct otlp *o, const struct export_process *p) {
    size_t m = pb_begin(&o->b, RESOURCE_PROFILES_RESOURCE);

    put_attribute(&o->b, "service.name", o->x->title ? o->x->title : "probing", 0);
    put_attribute(&o->b, "host.name", p->host, 0);
    put_attribute(&o->b, "process.pid", NULL, p->pid);
    put_attribute(&o->b, "process.command_line", p->command, 0);
    if (p->rank >= 0)
        put_attribute(&o->b, "rank", NULL, p->rank);
    if (p->world_size >= 0)
        put_attribute(&o->b, "world_size", NULL, p->world_size);
    put_attribute(&o->b, "role", p->role, 0);
    put_attribute(&o->b, "run", p->run, 0);
    pb_end(&o->b, m);
}

static const struct value {
    const char *type, *unit;
    size_t at; /* in struct profile_row */
} values[] = {{"samples", "count", offsetof(struct profile_row, count)},
              {"cpu", "nanoseconds", offsetof(struct profile_row, cpu)},
              {"wall", "nanoseconds", offsetof(struct profile_row, wall)}};

static void put_value_type(struct otlp *o, unsigned field, const struct value *v) {
    size_t m = pb_begin(&o->b, field);

    pb_uint(&o->b, VALUE_TYPE_TYPE_STRINDEX, pb_string(&o->strings, v->type));
    pb_uint(&o->b, VALUE_TYPE_UNIT_STRINDEX, pb_string(&o->strings, v->unit));
    pb_end(&o->b, m);
}

static void put_sample(struct otlp *o, const struct profile_row *row, int64_t value) {
    const struct export_thread *t = row->thread;
    char name[400];

    size_t m = pb_begin(&o->b, PROFILE_SAMPLES);
    pb_uint(&o->b, SAMPLE_STACK_INDEX, o->stack[export_frames_stack(&o->frames, row->stack)]);
    size_t list = pb_begin(&o->b, SAMPLE_ATTRIBUTE_INDICES);
    pb_packed(&o->b, attribute(o, "thread.id", NULL, t->tid));
    pb_packed(&o->b, attribute(o, "thread.name", export_thread_name(t, name, sizeof name), 0));
    if (row->step >= 0)
        pb_packed(&o->b, attribute(o, "step", NULL, row->step));
    pb_end(&o->b, list);
    list = pb_begin(&o->b, SAMPLE_VALUES);
    pb_packed(&o->b, (uint64_t)value);
    pb_end(&o->b, list);
    pb_end(&o->b, m);
}

static void put_profile(struct otlp *o, const struct export_process *p, const struct value *v,
                        const struct profile_row *row, size_t n) {
    /* 16 bytes that no other profile has: from the process, its start, the resource and the type. */
    uint64_t id[2] = {(uint64_t)p->start ^ (uint64_t)p->pid << 40 ^ (uint64_t)p->id << 20,
                      (uint64_t)o->chunks << 8 | (uint64_t)(v - values + 1)};
    size_t m = pb_begin(&o->b, SCOPE_PROFILES_PROFILES);

    put_value_type(o, PROFILE_SAMPLE_TYPE, v);
    for (size_t i = 0; i < n; i++) {
        int64_t value = *(const int64_t *)((const char *)&row[i] + v->at);
        if (value)
            put_sample(o, &row[i], value);
    }
    pb_fixed64(&o->b, PROFILE_TIME_UNIX_NANO, (uint64_t)p->start);
    pb_uint(&o->b, PROFILE_DURATION_NANO, (uint64_t)(p->end - p->start));
    put_value_type(o, PROFILE_PERIOD_TYPE, &values[2]);
    pb_int(&o->b, PROFILE_PERIOD, p->period);
    pb_bytes(&o->b, PROFILE_PROFILE_ID, id, sizeof id);
    pb_end(&o->b, m);
}

static int put(void *ctx, const struct export_process *p, const struct profile_row *row, size_t n) {
    struct otlp *o = ctx;
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = put_stack(o, row[i].stack);
    if (rc < 0)
        return rc;
    o->chunks++;
    size_t resource = pb_begin(&o->b, DATA_RESOURCE_PROFILES);
    put_resource(o, p);
    size_t scope_profiles = pb_begin(&o->b, RESOURCE_PROFILES_SCOPE_PROFILES),
           scope = pb_begin(&o->b, SCOPE_PROFILES_SCOPE);
    pb_text(&o->b, SCOPE_NAME, "probing");
    pb_text(&o->b, SCOPE_VERSION, PROBING_VERSION);
    pb_end(&o->b, scope);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        put_profile(o, p, &values[i], row, n);
    pb_end(&o->b, scope_profiles);
    pb_end(&o->b, resource);
    return pb_write(&o->b, o->x->out);
}

/* Writes the first entry of each table, which stands for "none". */
static void begin_tables(struct otlp *o) {
    static const enum dictionary_field tables[] = {
        DICTIONARY_MAPPING_TABLE, DICTIONARY_LOCATION_TABLE,  DICTIONARY_FUNCTION_TABLE,
        DICTIONARY_LINK_TABLE,    DICTIONARY_ATTRIBUTE_TABLE, DICTIONARY_STACK_TABLE};

    pb_strings_begin(&o->strings, &o->dict, DICTIONARY_STRING_TABLE);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        pb_bytes(&o->dict, tables[i], NULL, 0);
}

static int write_otlp(struct export *x) {
    struct otlp o = {.x = x};
    int rc = export_frames_open(&o.frames, x);

    begin_tables(&o);
    if (rc == 0) {
        o.function = calloc((size_t)o.frames.max_function + 1, sizeof *o.function);
        o.location = calloc((size_t)o.frames.max_frame + 1, sizeof *o.location);
        o.stack = calloc((size_t)o.frames.max_stack + 1, sizeof *o.stack);
        rc = o.function && o.location && o.stack ? profile_rows(x, put, &o) : -ENOMEM;
    }
    if (rc == 0)
        rc = o.dict.err ? o.dict.err : o.attributes.err;
    if (rc == 0) {
        pb_bytes(&o.b, DATA_DICTIONARY, o.dict.bytes, o.dict.n);
        rc = pb_write(&o.b, x->out);
    }
    export_frames_close(&o.frames);
    pb_strings_free(&o.strings);
    pb_names_free(&o.attributes);
    pb_free(&o.b);
    pb_free(&o.dict);
    free(o.function);
    free(o.location);
    free(o.stack);
    return rc;
}

const struct export_format export_otlp = {
    "otlp", ".otlp", "OpenTelemetry's profiles (v1development), protobuf", 1, write_otlp};
