/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints of the eRAID driver; kapi/trace.rs has their Rust side.
 *
 * Strings come from Rust and so have a length instead of a final NUL. Members
 * are named by their slot in the array; sectors are 512 bytes.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM eraid

#if !defined(_ERAID_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _ERAID_TRACE_H

#include <linux/tracepoint.h>
#include <linux/types.h>

#ifndef _ERAID_TRACE_STR
#define _ERAID_TRACE_STR
/* A Rust string; "struct Str" of kapi/trace.rs. */
struct eraid_str {
	const char *ptr;
	size_t len;
};
#endif

/* Something an administrator may want to know, in the manner of ZFS ereports. */
TRACE_EVENT(eraid_ereport,
	TP_PROTO(const struct eraid_str *class, const struct eraid_str *array,
		 const struct eraid_str *member, int slot,
		 const struct eraid_str *reason, u64 value, u64 peer,
		 u64 fence, u32 windows, u64 duration_us),
	TP_ARGS(class, array, member, slot, reason, value, peer, fence, windows,
		duration_us),
	TP_STRUCT__entry(
		__string_len(class, class->ptr, class->len)
		__string_len(array, array->ptr, array->len)
		__string_len(member, member->ptr, member->len)
		__string_len(reason, reason->ptr, reason->len)
		__field(int, slot)
		__field(u32, windows)
		__field(u64, value)
		__field(u64, peer)
		__field(u64, fence)
		__field(u64, duration_us)
	),
	TP_fast_assign(
		__assign_str(class);
		__assign_str(array);
		__assign_str(member);
		__assign_str(reason);
		__entry->slot = slot;
		__entry->windows = windows;
		__entry->value = value;
		__entry->peer = peer;
		__entry->fence = fence;
		__entry->duration_us = duration_us;
	),
	TP_printk("class=%s array=%s member=%s slot=%d reason=%s value=%llu peer=%llu fence=%llu windows=%u duration_us=%llu",
		  __get_str(class), __get_str(array), __get_str(member),
		  __entry->slot, __get_str(reason), __entry->value,
		  __entry->peer, __entry->fence, __entry->windows,
		  __entry->duration_us)
);

/* A read, or a part of one, has its data. */
TRACE_EVENT(eraid_read,
	TP_PROTO(const struct eraid_str *array, const struct eraid_str *mode,
		 u64 stripe, u32 sectors, u64 latency_us),
	TP_ARGS(array, mode, stripe, sectors, latency_us),
	TP_STRUCT__entry(
		__string_len(array, array->ptr, array->len)
		__string_len(mode, mode->ptr, mode->len)
		__field(u64, stripe)
		__field(u64, latency_us)
		__field(u32, sectors)
	),
	TP_fast_assign(
		__assign_str(array);
		__assign_str(mode);
		__entry->stripe = stripe;
		__entry->latency_us = latency_us;
		__entry->sectors = sectors;
	),
	TP_printk("array=%s mode=%s stripe=%llu sectors=%u latency_us=%llu",
		  __get_str(array), __get_str(mode), __entry->stripe,
		  __entry->sectors, __entry->latency_us)
);

/* A part of a write, at most one stripe, is done. */
TRACE_EVENT(eraid_write,
	TP_PROTO(const struct eraid_str *array, const struct eraid_str *kind,
		 u64 stripe, u32 sectors, u64 latency_us),
	TP_ARGS(array, kind, stripe, sectors, latency_us),
	TP_STRUCT__entry(
		__string_len(array, array->ptr, array->len)
		__string_len(kind, kind->ptr, kind->len)
		__field(u64, stripe)
		__field(u64, latency_us)
		__field(u32, sectors)
	),
	TP_fast_assign(
		__assign_str(array);
		__assign_str(kind);
		__entry->stripe = stripe;
		__entry->latency_us = latency_us;
		__entry->sectors = sectors;
	),
	TP_printk("array=%s kind=%s stripe=%llu sectors=%u latency_us=%llu",
		  __get_str(array), __get_str(kind), __entry->stripe,
		  __entry->sectors, __entry->latency_us)
);

/* A command to one member: sent, ended, or taken back before it was sent. */
DECLARE_EVENT_CLASS(eraid_subreq,
	TP_PROTO(const struct eraid_str *array, u32 slot,
		 const struct eraid_str *op, u64 sector, u32 sectors,
		 const struct eraid_str *class, u8 status),
	TP_ARGS(array, slot, op, sector, sectors, class, status),
	TP_STRUCT__entry(
		__string_len(array, array->ptr, array->len)
		__string_len(op, op->ptr, op->len)
		__string_len(class, class->ptr, class->len)
		__field(u64, sector)
		__field(u32, sectors)
		__field(u32, slot)
		__field(u8, status)
	),
	TP_fast_assign(
		__assign_str(array);
		__assign_str(op);
		__assign_str(class);
		__entry->sector = sector;
		__entry->sectors = sectors;
		__entry->slot = slot;
		__entry->status = status;
	),
	TP_printk("array=%s slot=%u op=%s sector=%llu sectors=%u class=%s status=%u",
		  __get_str(array), __entry->slot, __get_str(op),
		  __entry->sector, __entry->sectors, __get_str(class),
		  __entry->status)
);

DEFINE_EVENT(eraid_subreq, eraid_subreq_issue,
	TP_PROTO(const struct eraid_str *array, u32 slot,
		 const struct eraid_str *op, u64 sector, u32 sectors,
		 const struct eraid_str *class, u8 status),
	TP_ARGS(array, slot, op, sector, sectors, class, status)
);

DEFINE_EVENT(eraid_subreq, eraid_subreq_done,
	TP_PROTO(const struct eraid_str *array, u32 slot,
		 const struct eraid_str *op, u64 sector, u32 sectors,
		 const struct eraid_str *class, u8 status),
	TP_ARGS(array, slot, op, sector, sectors, class, status)
);

DEFINE_EVENT(eraid_subreq, eraid_subreq_remove,
	TP_PROTO(const struct eraid_str *array, u32 slot,
		 const struct eraid_str *op, u64 sector, u32 sectors,
		 const struct eraid_str *class, u8 status),
	TP_ARGS(array, slot, op, sector, sectors, class, status)
);

/* Rows lo..hi (sectors in the chunk) of a stripe were computed from the others. */
TRACE_EVENT(eraid_reconstruct,
	TP_PROTO(const struct eraid_str *array, u64 stripe, u32 lo, u32 hi,
		 u64 missing),
	TP_ARGS(array, stripe, lo, hi, missing),
	TP_STRUCT__entry(
		__string_len(array, array->ptr, array->len)
		__field(u64, stripe)
		__field(u64, missing)
		__field(u32, lo)
		__field(u32, hi)
	),
	TP_fast_assign(
		__assign_str(array);
		__entry->stripe = stripe;
		__entry->missing = missing;
		__entry->lo = lo;
		__entry->hi = hi;
	),
	TP_printk("array=%s stripe=%llu lo=%u hi=%u missing=0x%llx",
		  __get_str(array), __entry->stripe, __entry->lo, __entry->hi,
		  __entry->missing)
);

/* Progress of resync, recovery, check or repair, in sectors of a member. */
TRACE_EVENT(eraid_sync,
	TP_PROTO(const struct eraid_str *array, const struct eraid_str *action,
		 u64 done, u64 total),
	TP_ARGS(array, action, done, total),
	TP_STRUCT__entry(
		__string_len(array, array->ptr, array->len)
		__string_len(action, action->ptr, action->len)
		__field(u64, done)
		__field(u64, total)
	),
	TP_fast_assign(
		__assign_str(array);
		__assign_str(action);
		__entry->done = done;
		__entry->total = total;
	),
	TP_printk("array=%s action=%s done=%llu total=%llu",
		  __get_str(array), __get_str(action), __entry->done,
		  __entry->total)
);

#endif /* _ERAID_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE eraid_trace
/* This part must be outside the protection. */
#include <trace/define_trace.h>
