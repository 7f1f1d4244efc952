// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of kapi/ once more: an object belongs to one module only.
 */
#include "../shim/eraid_shim.c"
