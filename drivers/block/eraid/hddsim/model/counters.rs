// SPDX-License-Identifier: GPL-2.0

//! What a drive counts, much as real ones do in their logs.

use core::fmt;

/// Defines the counters with their names.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counts of a drive since it was made or reset.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl fmt::Display for Counters {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, concat!(stringify!($name), " {}"), self.$name)?;)+
                Ok(())
            }
        }
    };
}

counters! {
    /// Read commands taken.
    reads,
    /// Write commands taken.
    writes,
    /// Flush commands taken.
    flushes,
    /// Blocks asked for by reads.
    read_blocks,
    /// Blocks of write commands.
    written_blocks,
    /// Reads answered from the track buffer.
    buffer_hits,
    /// Reads answered from the write cache.
    cache_hits,
    /// Movements to another cylinder.
    seeks,
    /// Blocks read only after retries ("errors corrected with delays", SCSI log page 03h).
    recovered_sectors,
    /// Turns spent on retries ("total times correction algorithm processed").
    retry_turns,
    /// Reads that ended with an error ("total uncorrected errors").
    unrecovered_reads,
    /// Writes from the cache to the medium.
    destages,
    /// Choices of the oldest command instead of the nearest.
    aged_picks,
    /// Microseconds in which the mechanics or the answers of commands took the drive's time.
    busy_us,
    /// Most commands held at once.
    max_queued,
}
