// SPDX-License-Identifier: GPL-2.0
/*
 * Module parameters that can be changed at run time. The functions are in
 * kapi/params.rs.
 */
#include <linux/compiler.h>
#include <linux/moduleparam.h>
#include <linux/module.h>

#include "eraid_shim.h"

int eraid_read_policy_set(const char *val, const struct kernel_param *kp);
int eraid_read_policy_get(char *buffer, const struct kernel_param *kp);

static const struct kernel_param_ops eraid_read_policy_ops = {
	.set = eraid_read_policy_set,
	.get = eraid_read_policy_get,
};

module_param_cb(read_policy, &eraid_read_policy_ops, NULL, 0644);
MODULE_PARM_DESC(read_policy, "Read policy of new arrays (auto, normal, failfast, proactive)");

static bool devices_handle_discard_safely;
module_param(devices_handle_discard_safely, bool, 0644);
MODULE_PARM_DESC(devices_handle_discard_safely,
		 "Discarded blocks of all members of RAID-5 and RAID-6 read the same each time");

bool eraid_discards_are_safe(void)
{
	return READ_ONCE(devices_handle_discard_safely);
}
