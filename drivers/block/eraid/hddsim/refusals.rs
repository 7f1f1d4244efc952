// SPDX-License-Identifier: GPL-2.0

//! What was refused last, for `last_error` and the log.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

use eraid_hddsim_model::{refusal::Refusal, text::TextBuf, words::Excerpt};

use crate::error::code_of;

/// The last refusal, and how many there were.
#[derive(Default)]
struct Last {
    number: u64,
    text: TextBuf<400>,
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Refusals {
    #[pin]
    last: Mutex<Last>,
}

impl Refusals {
    /// Nothing was refused yet.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                last <- new_mutex!(Last::default(), "eraid_hddsim::refusals"),
            }),
            GFP_KERNEL,
        )
    }

    /// Ends a write of `line` to a file: a refusal is noted, and becomes the write's error.
    pub(crate) fn finish(&self, line: &[u8], result: Result<(), Refusal>) -> Result {
        result.map_err(|refusal| {
            self.note(line, &refusal);
            code_of(refusal.errno)
        })
    }

    fn note(&self, line: &[u8], refusal: &Refusal) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let errno = refusal.errno.as_str();
        let text = TextBuf::format(format_args!(
            "{}\n{errno}: {}",
            Excerpt(line),
            refusal.as_str()
        ));
        let mut last = self.last.lock();
        last.number = last.number.wrapping_add(1);
        last.text = text;
        drop(last);
        array_warn_ratelimited!(errno, "{}", refusal.as_str());
    }

    /// How many there were, and the text of the last.
    pub(crate) fn last(&self) -> (u64, TextBuf<400>) {
        let last = self.last.lock();
        (last.number, last.text)
    }
}
