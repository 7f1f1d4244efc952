// SPDX-License-Identifier: GPL-2.0
#include <linux/preempt.h>

#include "eraid_shim_misc.h"

bool eraid_in_task(void)
{
	return in_task() && !in_softirq();
}
