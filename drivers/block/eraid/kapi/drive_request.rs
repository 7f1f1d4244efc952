// SPDX-License-Identifier: GPL-2.0

//! What a request asks of a drive, beyond what an array takes from it.

use kernel::{
    bindings,
    prelude::*, //
};

use super::{
    request::Request,
    sys, //
};

impl Request {
    /// Whether the data has to be durable when the request ends.
    pub(crate) fn is_fua(&self) -> bool {
        self.cmd_flags() & sys::ERAID_CONST_REQ_FUA != 0
    }

    /// Whether the device is asked not to retry: the request shall fail fast on device errors.
    pub(crate) fn is_failfast(&self) -> bool {
        self.cmd_flags() & sys::ERAID_CONST_REQ_FAILFAST_DEV != 0
    }

    /// The number of the command duration limit that the request's priority hints at; 0 is none.
    pub(crate) fn duration_limit(&self) -> u16 {
        // SAFETY: `rq` is valid by the type invariant; the field is constant until bytes are ended,
        // which is done with the last share.
        let bio = unsafe { (*self.rq.as_ptr()).bio };
        if bio.is_null() {
            return 0;
        }
        // SAFETY: The bio is part of the request, which is started. All its bios have one priority.
        let ioprio = unsafe { (*bio).bi_ioprio };
        ioprio >> sys::ERAID_CONST_IOPRIO_HINT_SHIFT & sys::ERAID_CONST_IOPRIO_HINT_MASK
    }

    /// Writes zeros to `len` bytes at `off` of the request's data.
    ///
    /// # Errors
    ///
    /// [`ERANGE`] if the range is not inside the request; then nothing is written. [`EINVAL`] if
    /// the request is not a read.
    pub(crate) fn fill_zero(&self, off: usize, len: usize) -> Result {
        self.check_read()?;
        self.for_each_run(off, len, |data, n| {
            // SAFETY: `for_each_run()` gives memory of the request, valid for `n` bytes. The
            // request is a read, so its memory is for us to write to.
            unsafe { bindings::memset(data.cast(), 0, n) };
            Ok(())
        })
    }
}
