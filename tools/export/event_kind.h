/* SPDX-License-Identifier: Apache-2.0 */
/* event_kind.h - the kinds of events (events.h), and how they are linked to each other. */
#ifndef PROBING_TOOLS_EXPORT_EVENT_KIND_H
#define PROBING_TOOLS_EXPORT_EVENT_KIND_H

enum export_kind {
    EXPORT_STEP, /* a step, or an evaluation between steps */
    EXPORT_CALL, /* a call of a module (category forward, backward), or a whole backward pass, optimizer step, wait for data */
    EXPORT_COLLECTIVE, /* or a send, recv; its track is the process group's */
    EXPORT_SPAN,       /* probing.span() */
    EXPORT_MARK,       /* a moment: probing.event(), a trigger */
    EXPORT_COUNTER,    /* a value from ts on */
};

enum export_flow { EXPORT_FLOW_NONE, EXPORT_FLOW_FIRST, EXPORT_FLOW_NEXT, EXPORT_FLOW_LAST };

#endif
