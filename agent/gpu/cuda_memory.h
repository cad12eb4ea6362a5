/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_memory.h - what torch's allocator says of its GPU memory, by torch._C._cuda_memoryStats(device): the function behind
 * torch.cuda.memory_allocated(), without the latter's sorting of a hundred numbers. It looks at counters and changes
 * nothing, and does not ask the GPU.
 *
 *     if (!cuda_memory_find()) ...                            // once; torch.cuda has been initialised
 *     struct cuda_memory m;
 *     if (!cuda_memory_read(device, &m)) ...
 *
 * The GIL is held, and no exception is set; none is set afterwards.
 */
#ifndef PROBING_AGENT_CUDA_MEMORY_H
#define PROBING_AGENT_CUDA_MEMORY_H

#include <stdint.h>

struct cuda_memory {
    int64_t allocated, peak, reserved; /* bytes */
};

/* 1: torch.cuda is initialised in this process. */
int cuda_memory_initialised(void);
/* 0 or -ENOTSUP: this torch lacks it. */
int cuda_memory_find(void);
/* 0; -EIO: it raised an error, or its answer is of another shape. */
int cuda_memory_read(int device, struct cuda_memory *m);

#endif
