// SPDX-License-Identifier: GPL-2.0
/*
 * Out-of-line forms of the kernel's inline functions and macros; see
 * eraid_shim.h. There is no logic here.
 */
#include <linux/blk-mq.h>
#include <linux/blk_plug.h>
#include <linux/blkdev.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/wait_bit.h>
#include <trace/events/block.h>

#include "eraid_shim.h"

void *eraid_page_address(struct page *page)
{
	return page_address(page);
}

/* The condition that xor_gen() warns about. */
bool eraid_xor_allowed(void)
{
	return in_task() && !irqs_disabled() && !softirq_count();
}

struct blk_plug *eraid_plug_detach(void)
{
	struct blk_plug *plug = current->plug;

	/* The scheduler takes PF_BLOCK_TS for proof that there is a plug. */
	blk_plug_invalidate_ts();
	current->plug = NULL;
	return plug;
}

void eraid_plug_attach(struct blk_plug *plug)
{
	current->plug = plug;
}

unsigned int eraid_noio_save(void)
{
	return memalloc_noio_save();
}

void eraid_noio_restore(unsigned int flags)
{
	memalloc_noio_restore(flags);
}

bool eraid_wait_zero(int *counter, unsigned int timeout_ms)
{
	/* Pairs with the full barrier of the decrement. */
	return wait_var_event_timeout(counter, !smp_load_acquire(counter),
				      msecs_to_jiffies(timeout_ms));
}

void eraid_wait_zero_forever(int *counter)
{
	/* Pairs with the full barrier of the decrement. */
	wait_var_event(counter, !smp_load_acquire(counter));
}

void eraid_rq_for_each_bvec(struct request *rq,
			    bool (*fn)(void *ctx, void *addr, unsigned int len),
			    void *ctx)
{
	struct req_iterator iter;
	struct bio_vec bv;

	rq_for_each_bvec(bv, rq, iter) {
		if (!fn(ctx, bvec_virt(&bv), bv.bv_len))
			return;
	}
}

void eraid_bvec_set_virt(struct bio_vec *vec, void *addr, unsigned int len)
{
	bvec_set_virt(vec, addr, len);
}

void eraid_bio_root_cgroup(struct bio *bio)
{
	bio_associate_blkg_from_css(bio, NULL);
}

void eraid_trace_bio_remap(struct bio *bio, dev_t dev, sector_t sector)
{
	trace_block_bio_remap(bio, dev, sector);
}

bool eraid_bdev_read_only(struct block_device *bdev)
{
	return bdev_read_only(bdev);
}

int eraid_bdev_name(struct block_device *bdev, char *buf, size_t size)
{
	return scnprintf(buf, size, "%pg", bdev);
}

unsigned int eraid_disk_openers(struct gendisk *disk)
{
	return disk_openers(disk);
}
