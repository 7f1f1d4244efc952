// SPDX-License-Identifier: GPL-2.0

//! An object with an alarm: a high resolution timer for a point in time.
//!
//! The kernel crate's timers tie each start to a handle whose drop cancels the timer; here the object
//! itself does that, and so its alarm can be set from any of its references.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use core::{
    ops::Deref,
    pin::Pin, //
};

use kernel::{
    bindings,
    container_of,
    prelude::*,
    types::Opaque, //
};

/// An object that can be woken by its [`Alarm`].
pub(crate) trait Rings: Sized + Send + Sync + 'static {
    /// The time that was set has come.
    ///
    /// Called in a hard interrupt. It may set the alarm again, but must not drop the last reference to
    /// the object, which would wait for this to return.
    fn ring(this: &Alarm<Self>);
}

/// A `T` with an alarm. Dropping it cancels the alarm, and waits for a [`Rings::ring`] that runs.
///
/// # Invariants
///
/// `timer` is initialised, and is only ever in use while this object exists.
#[pin_data(PinnedDrop)]
pub(crate) struct Alarm<T: Rings> {
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    #[pin]
    inner: T,
}

// SAFETY: A timer may be used and cancelled by any thread, and `T` is `Send`.
unsafe impl<T: Rings> Send for Alarm<T> {}
// SAFETY: Timers have their own locking, and `T` is `Sync`.
unsafe impl<T: Rings> Sync for Alarm<T> {}

impl<T: Rings> Alarm<T> {
    /// Makes an object whose alarm is not set.
    pub(crate) fn new(inner: impl PinInit<T, Error>) -> impl PinInit<Self, Error> {
        // INVARIANT: The timer is set up, and not started.
        try_pin_init!(Self {
            timer <- Opaque::ffi_init(|timer: *mut bindings::hrtimer| {
                // SAFETY: `timer` is valid for writes, and stays in place.
                unsafe {
                    bindings::hrtimer_setup(
                        timer,
                        Some(Self::expired),
                        bindings::CLOCK_MONOTONIC as bindings::clockid_t,
                        bindings::hrtimer_mode_HRTIMER_MODE_ABS,
                    );
                }
            }),
            inner <- inner,
        })
    }

    /// Sets the alarm to a time of the monotonic clock, in nanoseconds, instead of any earlier
    /// setting. A time that has passed rings at once. Any context.
    pub(crate) fn set(&self, ns: u64) {
        // The clock ends there.
        let time = i64::try_from(ns).unwrap_or(i64::MAX);
        // SAFETY: The timer is initialised by the type invariant, and cancelled before it is freed.
        unsafe {
            bindings::hrtimer_start_range_ns(
                self.timer.get(),
                time,
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_ABS,
            );
        }
    }

    /// # Safety
    ///
    /// To be called by the timer code only, for the timer of an object of this type.
    unsafe extern "C" fn expired(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        let timer = timer.cast::<Opaque<bindings::hrtimer>>();
        // SAFETY: By the function's requirements the timer is this field of an object, which exists:
        // dropping it waits for us.
        let this = unsafe { &*container_of!(timer, Self, timer) };
        T::ring(this);
        bindings::hrtimer_restart::HRTIMER_NORESTART
    }
}

impl<T: Rings> Deref for Alarm<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

#[pinned_drop]
impl<T: Rings> PinnedDrop for Alarm<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The timer is initialised by the type invariant. Nobody can start it any more.
        unsafe { bindings::hrtimer_cancel(self.timer.get()) };
    }
}
