//! Counts the values that the statistics touch, in tests only: what a comparison costs must grow with the length of a
//! recording and no faster, and a count shows that on any machine, where a time does not.

#[cfg(test)]
thread_local! {
    static VALUES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Notes that this many values are about to be touched.
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

/// Two of a kind at once, the second on a thread of its own: a day of each recording is seconds of work. What that thread counts
/// is counted here.
pub fn on_both<T: Send>(a: impl FnOnce() -> T + Send, b: impl FnOnce() -> T + Send) -> [T; 2] {
    std::thread::scope(|threads| {
        let other = threads.spawn(|| {
            let made = b();
            #[cfg(test)]
            return (made, take());
            #[cfg(not(test))]
            (made, ())
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
