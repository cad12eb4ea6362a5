/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perfetto.h - shared by the two halves of the Perfetto format: packets and names that are written once (perfetto.c), and samples
 * (perfetto_samples.c).
 *
 *     size_t packet = perfetto_packet(p, ts);           // ts 0: a packet without a time
 *     pb_...(&p->b, PACKET_..., ...);
 *     int rc = perfetto_packet_end(p, packet);          // 0 or -errno: it is written
 *
 * What a packet needs interned (by perfetto_intern(), or by hand in p->interned) must be interned before the packet begins, because it is
 * written at the head of the packet.
 */
#ifndef PROBING_TOOLS_EXPORT_PERFETTO_H
#define PROBING_TOOLS_EXPORT_PERFETTO_H

#include "export.h"
#include "protobuf.h"

/*
 * Numbers of fields: github.com/google/perfetto, protos/perfetto/trace/, as of v59.1: trace.proto, trace_packet.proto,
 * trace_packet_defaults.proto, clock_snapshot.proto, interned_data/interned_data.proto, track_event/{track_event, track_descriptor,
 * process_descriptor, thread_descriptor, counter_descriptor, debug_annotation}.proto, profiling/{profile_common, stack_sample}.proto.
 */
enum { TRACE_PACKET = 1 };
enum packet_field {
    PACKET_CLOCK_SNAPSHOT = 6,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE_ID = 10, /* trusted_packet_sequence_id */
    PACKET_TRACK_EVENT = 11,
    PACKET_INTERNED_DATA = 12,
    PACKET_SEQUENCE_FLAGS = 13,
    PACKET_TIMESTAMP_CLOCK_ID = 58,
    PACKET_DEFAULTS = 59, /* trace_packet_defaults */
    PACKET_TRACK_DESCRIPTOR = 60,
    PACKET_STACK_SAMPLE = 135,
};
enum sequence_flag { SEQ_INCREMENTAL_STATE_CLEARED = 1, SEQ_NEEDS_INCREMENTAL_STATE = 2 };
enum defaults_field { DEFAULTS_TIMESTAMP_CLOCK_ID = 58, DEFAULTS_STACK_SAMPLE = 100 };
enum clock_snapshot_field { SNAPSHOT_CLOCKS = 1, SNAPSHOT_PRIMARY_TRACE_CLOCK = 2 };
enum clock_field { CLOCK_ID = 1, CLOCK_TIMESTAMP = 2 };
enum builtin_clock { CLOCK_OF_TIME_OF_DAY = 1 }; /* BUILTIN_CLOCK_REALTIME */
enum interned_field {
    INTERNED_EVENT_CATEGORIES = 1,
    INTERNED_EVENT_NAMES = 2,
    INTERNED_ANNOTATION_NAMES = 3,
    INTERNED_FUNCTION_NAMES = 5,
    INTERNED_FRAMES = 6,
    INTERNED_CALLSTACKS = 7,
    INTERNED_BUILD_IDS = 16,
    INTERNED_MAPPING_PATHS = 17,
    INTERNED_SOURCE_PATHS = 18,
    INTERNED_MAPPINGS = 19,
    INTERNED_ANNOTATION_STRINGS = 29,
    INTERNED_TASK_CONTEXTS = 48,
};
/* EventCategory, EventName, DebugAnnotationName, InternedString */
enum entry_field { ENTRY_IID = 1, ENTRY_TEXT = 2 };
enum track_field {
    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_THREAD = 4,
    TRACK_PARENT_UUID = 5,
    TRACK_COUNTER = 8,
};
enum process_field {
    PROCESS_PID = 1,
    PROCESS_CMDLINE = 2,
    PROCESS_SORT_INDEX = 3,
    PROCESS_NAME = 6
};
enum thread_field { THREAD_PID = 1, THREAD_TID = 2, THREAD_NAME = 5 };
enum counter_field { COUNTER_UNIT = 3, COUNTER_UNIT_NAME = 6 };
enum counter_unit { UNIT_SIZE_BYTES = 3 };
enum event_field {
    EVENT_CATEGORY_IIDS = 3,
    EVENT_DEBUG_ANNOTATIONS = 4,
    EVENT_TYPE = 9,
    EVENT_NAME_IID = 10,
    EVENT_TRACK_UUID = 11,
    EVENT_NAME = 23,
    EVENT_DOUBLE_COUNTER_VALUE = 44,
    EVENT_FLOW_IDS = 47,
    EVENT_TERMINATING_FLOW_IDS = 48,
};
enum event_type { TYPE_SLICE_BEGIN = 1, TYPE_SLICE_END = 2, TYPE_INSTANT = 3, TYPE_COUNTER = 4 };
enum annotation_field {
    ANNOTATION_NAME_IID = 1,
    ANNOTATION_INT_VALUE = 4,
    ANNOTATION_DOUBLE_VALUE = 5,
    ANNOTATION_STRING_VALUE = 6,
    ANNOTATION_STRING_VALUE_IID = 17,
};
/* Mapping, Frame, Callstack */
enum mapping_field { MAPPING_IID = 1, MAPPING_BUILD_ID = 2, MAPPING_PATH_STRING_IDS = 7 };
enum frame_field {
    FRAME_IID = 1,
    FRAME_FUNCTION_NAME_ID = 2,
    FRAME_MAPPING_ID = 3,
    FRAME_REL_PC = 4,
    FRAME_SOURCE_PATH_IID = 5,
    FRAME_LINE_NUMBER = 6,
    FRAME_KIND = 7,
};
enum frame_kind { KIND_NATIVE = 1, KIND_INTERPRETED = 3 };
enum callstack_field { CALLSTACK_IID = 1, CALLSTACK_FRAME_IDS = 2 };
enum stack_sample_field {
    STACK_SAMPLE_TASK_CONTEXT_IID = 2,
    STACK_SAMPLE_CALLSTACK_IID = 6,
    STACK_SAMPLE_PRIMARY_WEIGHT = 11,
    STACK_SAMPLE_FOLLOWER_WEIGHTS = 14,
};
enum stack_sample_defaults_field {
    STACK_DEFAULTS_SOURCE = 1,
    STACK_DEFAULTS_PRIMARY = 2,
    STACK_DEFAULTS_FOLLOWERS = 3,
};
enum counter_descriptor_field { DESCRIPTOR_NAME = 2, DESCRIPTOR_UNIT = 3 };
enum stack_sample_unit { UNIT_NANOSECONDS = 1, UNIT_COUNT = 9 };
enum task_context_field { TASK_IID = 1, TASK_PID = 2, TASK_TID = 3 };

struct perfetto {
    struct export *x;
    struct pb b, interned,
        event_fields;    /* interned: fields of InternedData that the next packet will contain */
    uint32_t *pid, *tid; /* of x->process, x->thread: the recorded ids, made unique in the file */
    struct pb_names event, category, annotation, string;
};

size_t perfetto_packet(struct perfetto *p, int64_t ts);
int perfetto_packet_end(struct perfetto *p, size_t packet);
/* Returns the number of a text in one of the tables of interned texts; 0: it is empty. */
uint64_t perfetto_intern(struct perfetto *p, struct pb_names *names, enum interned_field field,
                         const char *text);
/* perfetto_samples() writes all samples; perfetto_sample_defaults() adds to a packet what is said about them once. */
void perfetto_sample_defaults(struct pb *defaults);
int perfetto_samples(struct perfetto *p);

#endif
