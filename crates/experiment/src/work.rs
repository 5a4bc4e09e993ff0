//! Counts the values that the statistics touch, in tests only. The cost of a comparison must not grow faster than the
//! length of the recordings; a count shows that on any machine, a time does not.

#[cfg(test)]
thread_local! {
    static VALUES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Adds values that are about to be touched.
pub(crate) fn add(values: usize) {
    #[cfg(test)]
    VALUES.with(|count| count.set(count.get() + values as u64));
    #[cfg(not(test))]
    let _ = values;
}

/// Values touched by this thread since the last call.
#[cfg(test)]
pub(crate) fn take() -> u64 {
    VALUES.with(std::cell::Cell::take)
}

/// Calls both closures at once, the second one on its own thread, because a day's recording takes seconds of work. In
/// tests the values that the second thread touches are added to this thread's count.
pub fn on_both<T: Send>(a: impl FnOnce() -> T + Send, b: impl FnOnce() -> T + Send) -> [T; 2] {
    std::thread::scope(|threads| {
        let other = threads.spawn(|| {
            let of_b = b();
            #[cfg(test)]
            return (of_b, take());
            #[cfg(not(test))]
            (of_b, ())
        });
        let a = a();
        match other.join() {
            Ok((b, _values)) => {
                #[cfg(test)]
                VALUES.with(|count| count.set(count.get() + _values));
                [a, b]
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
