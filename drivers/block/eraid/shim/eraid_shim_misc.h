/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Macros of the kernel that kapi/context.rs needs as functions.
 */
#ifndef _ERAID_SHIM_MISC_H
#define _ERAID_SHIM_MISC_H

#include <linux/types.h>

bool eraid_in_task(void);

#endif /* _ERAID_SHIM_MISC_H */
