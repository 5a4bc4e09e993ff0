//! Guests whose time is counted in instructions (QEMU's `-icount`): each instruction takes 2^shift ns of the guest's
//! time, however long the host takes. Speed and load of the host are therefore invisible in the guest.
//!
//! While all CPUs of the guest sleep, its time jumps to the next timer (`sleep=off`). QEMU serves disk requests in the
//! host's time, so the latency of a request would depend on the guest's timers. Therefore the guest runs a timer of
//! its own (`ICOUNT_TICK`) for its whole life.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::VmError;
use super::arch::Arch;
use flatwater_recording::ICOUNT_TICK;

/// The first QEMU version in which two CPUs were seen to boot.
const QEMU_MIN: u32 = 10;
/// Maximum shift of an instruction's 2^shift ns: 1 is 500 million instructions per second, 10 is 1 million.
pub const SHIFT_MAX: u32 = 10;
/// Under `-icount` the time stamp counter counts the guest's nanoseconds.
pub const TSC_KHZ: u64 = 1_000_000;

/// QEMU's options for icount. The processor's random numbers use a fixed seed and the board's clock uses the guest's
/// time, so that two boots load the same things at the same addresses.
#[must_use]
pub fn arguments(shift: u32) -> [String; 6] {
    let count = format!("shift={shift},sleep=off");
    ["-icount", &count, "-seed", "1", "-rtc", "clock=vm"].map(str::to_owned)
}

/// Checks that the QEMU on the PATH can boot this number of CPUs with icount.
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

/// The version in QEMU's output: `10.0.2` in "QEMU emulator version 10.0.2 (Debian ...)".
fn version_of(text: &str) -> Option<&str> {
    text.split_once("version ")?.1.split_whitespace().next()
}

/// Wakes up every `ICOUNT_TICK` until the guest ends, so that time does not jump over a disk request.
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
    fn the_version_is_parsed_from_qemus_output() {
        assert_eq!(version_of("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright (c)"), Some("10.0.2"));
        assert_eq!(version_of("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"), Some("7.2.22"));
        assert_eq!(version_of("no such thing"), None);
        assert_eq!(arguments(2)[..2], ["-icount", "shift=2,sleep=off"]);
    }
}
