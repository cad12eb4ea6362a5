/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/base/quiesce.h"

#include <linux/membarrier.h>

#include "writer/sys.h"

uint32_t quiesce_light;

int quiesce_wait(const uint32_t *inside, int *ms) {
    for (; !quiesce_idle(inside); sys_sleep(SYS_MS))
        if ((*ms)-- <= 0)
            return -ETIMEDOUT;
    return 0;
}

static int membarrier(int command) {
    return syscall(SYS_membarrier, command, 0, 0) ? -errno : 0;
}

void quiesce_prepare(void) {
    if (!membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
        !membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        __atomic_store_n(&quiesce_light, 1, __ATOMIC_SEQ_CST);
}

int quiesce_fence(void) {
    if (!__atomic_load_n(&quiesce_light, __ATOMIC_RELAXED))
        return 0;
    int rc = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    if (rc && !membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)) /* as a forked child must */
        rc = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    return rc;
}
