//! Recognizes messages of the kernel about a device, an array or a server in trouble. `EventKind::report` determines
//! the kind of trouble.

use flatwater_recording::is_device_trouble;

#[must_use]
pub fn is_trouble(message: &str) -> bool {
    is_device_trouble(message)
}
