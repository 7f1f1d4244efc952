// SPDX-License-Identifier: GPL-2.0
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "eraid_trace.h"
