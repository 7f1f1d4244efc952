/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What Rust cannot call or express itself: inline functions, macros and
 * tracepoints of the kernel, one call each. There is no logic here.
 */
#ifndef ERAID_SHIM_H
#define ERAID_SHIM_H

#include <linux/types.h>

struct bio;
struct bio_vec;
struct blk_plug;
struct block_device;
struct gendisk;
struct page;
struct request;

/* Pages: the kernel's linear mapping (64-bit only). */
void *eraid_page_address(struct page *page);

/* Task state. */
bool eraid_xor_allowed(void);
struct blk_plug *eraid_plug_detach(void);
void eraid_plug_attach(struct blk_plug *plug);
unsigned int eraid_noio_save(void);
void eraid_noio_restore(unsigned int flags);

/* Waiting for a counter that is decremented before wake_up_var(). */
bool eraid_wait_zero(int *counter, unsigned int timeout_ms);
void eraid_wait_zero_forever(int *counter);

/* Requests. The walk ends early when @fn returns false. */
void eraid_rq_for_each_bvec(struct request *rq,
			    bool (*fn)(void *ctx, void *addr, unsigned int len),
			    void *ctx);
void eraid_bvec_set_virt(struct bio_vec *vec, void *addr, unsigned int len);

/* Module parameter devices_handle_discard_safely. */
bool eraid_discards_are_safe(void);

/* Member devices and the disk. */
void eraid_bio_root_cgroup(struct bio *bio);
void eraid_trace_bio_remap(struct bio *bio, dev_t dev, sector_t sector);
bool eraid_bdev_read_only(struct block_device *bdev);
int eraid_bdev_name(struct block_device *bdev, char *buf, size_t size);
unsigned int eraid_disk_openers(struct gendisk *disk);

#endif
