/* SPDX-License-Identifier: GPL-2.0 */
/* Only bindgen reads this: the shim, and constants that are casts in C. */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/crc32c.h>
#include <linux/ioprio.h>
#include <linux/raid/pq.h>
#include <linux/raid/xor.h>

#include "eraid_shim.h"

const blk_opf_t ERAID_CONST_REQ_OP_MASK = REQ_OP_MASK;
const blk_opf_t ERAID_CONST_REQ_FAILFAST_DEV = REQ_FAILFAST_DEV;
const blk_opf_t ERAID_CONST_REQ_FAILFAST_TRANSPORT = REQ_FAILFAST_TRANSPORT;
const blk_opf_t ERAID_CONST_REQ_NOMERGE = REQ_NOMERGE;
const blk_opf_t ERAID_CONST_REQ_SYNC = REQ_SYNC;
const blk_opf_t ERAID_CONST_REQ_META = REQ_META;
const blk_opf_t ERAID_CONST_REQ_PRIO = REQ_PRIO;
const blk_opf_t ERAID_CONST_REQ_IDLE = REQ_IDLE;
const blk_opf_t ERAID_CONST_REQ_FUA = REQ_FUA;
const blk_opf_t ERAID_CONST_REQ_PREFLUSH = REQ_PREFLUSH;
const blk_opf_t ERAID_CONST_REQ_RAHEAD = REQ_RAHEAD;
const blk_opf_t ERAID_CONST_REQ_BACKGROUND = REQ_BACKGROUND;
const blk_opf_t ERAID_CONST_REQ_NOWAIT = REQ_NOWAIT;

const blk_status_t ERAID_CONST_BLK_STS_NOTSUPP = BLK_STS_NOTSUPP;
const blk_status_t ERAID_CONST_BLK_STS_TIMEOUT = BLK_STS_TIMEOUT;
const blk_status_t ERAID_CONST_BLK_STS_NOSPC = BLK_STS_NOSPC;
const blk_status_t ERAID_CONST_BLK_STS_TRANSPORT = BLK_STS_TRANSPORT;
const blk_status_t ERAID_CONST_BLK_STS_TARGET = BLK_STS_TARGET;
const blk_status_t ERAID_CONST_BLK_STS_RESV_CONFLICT = BLK_STS_RESV_CONFLICT;
const blk_status_t ERAID_CONST_BLK_STS_MEDIUM = BLK_STS_MEDIUM;
const blk_status_t ERAID_CONST_BLK_STS_PROTECTION = BLK_STS_PROTECTION;
const blk_status_t ERAID_CONST_BLK_STS_RESOURCE = BLK_STS_RESOURCE;
const blk_status_t ERAID_CONST_BLK_STS_IOERR = BLK_STS_IOERR;
const blk_status_t ERAID_CONST_BLK_STS_AGAIN = BLK_STS_AGAIN;
const blk_status_t ERAID_CONST_BLK_STS_DEV_RESOURCE = BLK_STS_DEV_RESOURCE;
const blk_status_t ERAID_CONST_BLK_STS_OFFLINE = BLK_STS_OFFLINE;
const blk_status_t ERAID_CONST_BLK_STS_DURATION_LIMIT = BLK_STS_DURATION_LIMIT;
const blk_status_t ERAID_CONST_BLK_STS_INVAL = BLK_STS_INVAL;

const blk_mode_t ERAID_CONST_BLK_OPEN_READ = BLK_OPEN_READ;
const blk_mode_t ERAID_CONST_BLK_OPEN_WRITE = BLK_OPEN_WRITE;

const blk_features_t ERAID_CONST_BLK_FEAT_WRITE_CACHE = BLK_FEAT_WRITE_CACHE;
const blk_features_t ERAID_CONST_BLK_FEAT_FUA = BLK_FEAT_FUA;
const blk_features_t ERAID_CONST_BLK_FEAT_ROTATIONAL = BLK_FEAT_ROTATIONAL;
const blk_features_t ERAID_CONST_BLK_FEAT_NOWAIT = BLK_FEAT_NOWAIT;
const blk_features_t ERAID_CONST_BLK_FEAT_ZONED = BLK_FEAT_ZONED;
const blk_features_t ERAID_CONST_BLK_FEAT_RAID_PARTIAL_STRIPES_EXPENSIVE =
	BLK_FEAT_RAID_PARTIAL_STRIPES_EXPENSIVE;

const unsigned short ERAID_CONST_IOPRIO_HINT_SHIFT = IOPRIO_HINT_SHIFT;
const unsigned short ERAID_CONST_IOPRIO_HINT_MASK = IOPRIO_HINT_MASK;
