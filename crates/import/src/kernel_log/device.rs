//! Lines in which the kernel says that a device, an array or a server is in trouble. Which kind of trouble is for
//! `EventKind::report` to tell.

use flatwater_recording::event::is_device_trouble;

#[must_use]
pub fn is_trouble(message: &str) -> bool {
    is_device_trouble(message)
}
