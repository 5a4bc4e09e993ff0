//! Guests whose time is counted in instructions (QEMU's `-icount`): each takes 2^shift ns of the guest's time, however long the
//! host takes for it, so that neither its speed nor its load is seen inside.
//!
//! Where all CPUs of the guest sleep, time jumps to the next timer (`sleep=off`): a request of the disk, which QEMU serves in the host's
//! time, then takes as long as the guest's timers let it seem. So the guest keeps a timer of its own (`ICOUNT_TICK`) as long as it lives.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::VmError;
use super::arch::Arch;
use flatwater_recording::ICOUNT_TICK;

/// The first QEMU with which two CPUs were seen to boot.
const QEMU_MIN: u32 = 10;
/// Of instructions of 2^shift ns: 1 is 500 million a second, 10 is 1 million.
pub const SHIFT_MAX: u32 = 10;
/// The time stamp counter under `-icount` counts nanoseconds of the guest.
pub const TSC_KHZ: u64 = 1_000_000;

/// QEMU's options for it. Random numbers of the processor come from a seed and the clock of the board from the guest's time, so that two
/// boots load the same things to the same places.
#[must_use]
pub fn arguments(shift: u32) -> [String; 6] {
    let count = format!("shift={shift},sleep=off");
    ["-icount", &count, "-seed", "1", "-rtc", "clock=vm"].map(str::to_owned)
}

/// Whether the QEMU on the PATH boots so many CPUs in such time.
pub fn check(arch: Arch, cpus: u32) -> Result<(), VmError> {
    let asked = Command::new(arch.qemu()).arg("--version").stdin(Stdio::null()).output();
    let text = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let Ok(text) = text else { return Err(VmError::no_qemu(arch)) };
    let version = version_of(&text).unwrap_or("of an unknown version");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if cpus > 1 && major.is_none_or(|major| major < QEMU_MIN) {
        return Err(VmError::NoIcount { program: arch.qemu(), version: version.to_owned(), cpus });
    }
    Ok(())
}

/// `10.0.2` of "QEMU emulator version 10.0.2 (Debian ...)".
fn version_of(text: &str) -> Option<&str> {
    text.split_once("version ")?.1.split_whitespace().next()
}

/// Wakes up each `ICOUNT_TICK` until the guest ends: keeps time from jumping over a request of the disk.
pub fn keep_time() -> std::io::Result<()> {
    let each = Duration::from_nanos(ICOUNT_TICK.0);
    let tick = move || loop {
        std::thread::sleep(each);
    };
    std::thread::Builder::new().name("icount-tick".to_owned()).spawn(tick).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::{arguments, version_of};

    #[test]
    fn the_version_is_read_of_what_qemu_says() {
        assert_eq!(version_of("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright (c)"), Some("10.0.2"));
        assert_eq!(version_of("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"), Some("7.2.22"));
        assert_eq!(version_of("no such thing"), None);
        assert_eq!(arguments(2)[..2], ["-icount", "shift=2,sleep=off"]);
    }
}
