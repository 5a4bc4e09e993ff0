//! Processor architecture of a guest, determined by its kernel.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use super::tsc;

/// An arm64 processor that supports pages of 4, 16 and 64 KiB.
const NEOVERSE: &str = "neoverse-n1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    /// The architecture of this binary.
    pub const OWN: Arch = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };

    /// The architecture of a kernel image; `None` if the image has neither format.
    #[must_use]
    pub fn of_image(image: &Path) -> Option<Arch> {
        let mut head = Vec::new();
        File::open(image).ok()?.take(0x400).read_to_end(&mut head).ok()?;
        let at = |from: usize, mark: &[u8]| head.get(from..from + mark.len()) == Some(mark);
        // Documentation/arch/arm64/booting.rst. In a compressed image (EFI zboot), the PE header contains the machine.
        let pe = head.get(0x3c..0x40).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        let machine = pe.and_then(|pe| head.get(pe as usize + 4..pe as usize + 6));
        // Documentation/arch/x86/boot.rst.
        if at(0x202, b"HdrS") {
            Some(Arch::X86_64)
        } else if at(0x38, b"ARM\x64") || (at(4, b"zimg") && machine == Some(&[0x64, 0xaa])) {
            Some(Arch::Aarch64)
        } else {
            None
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        }
    }

    #[must_use]
    pub fn qemu(self) -> &'static str {
        match self {
            Arch::X86_64 => "qemu-system-x86_64",
            Arch::Aarch64 => "qemu-system-aarch64",
        }
    }

    #[must_use]
    pub fn qemu_package(self) -> &'static str {
        match self {
            Arch::X86_64 => "qemu-system-x86",
            Arch::Aarch64 => "qemu-system-arm",
        }
    }

    #[must_use]
    pub fn machine(self) -> &'static str {
        match self {
            Arch::X86_64 => "q35",
            Arch::Aarch64 => "virt",
        }
    }

    /// The emulated processor. `max` of x86 has RDRAND, which seeds the guest's random pool immediately instead of
    /// after a minute. `max` of arm64 has pointer authentication, which QEMU emulates slowly. A kernel with pages of
    /// 16 KiB prints nothing at all on a processor that lacks them (ID_AA64MMFR0_EL1.TGran16), such as cortex-a72;
    /// neoverse-n1 has them (tested with QEMU 7.2).
    #[must_use]
    pub fn processor(self, accelerator: &str) -> &'static str {
        match self {
            Arch::X86_64 => "max",
            Arch::Aarch64 if accelerator == "kvm" => "host",
            Arch::Aarch64 if self.has_processor(NEOVERSE) => NEOVERSE,
            Arch::Aarch64 => "cortex-a72",
        }
    }

    /// Whether the installed QEMU supports this processor.
    fn has_processor(self, name: &str) -> bool {
        let listed =
            Command::new(self.qemu()).args(["-cpu", "help"]).stdin(Stdio::null()).stderr(Stdio::null()).output();
        listed.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == name))
    }

    /// Kernel arguments that make the guest boot fast, fail fast, and print a stack when it hangs (a stack is a
    /// warning: loglevel 5). Under emulation the crypto self-tests take a third of the kernel's boot time, each read
    /// of the HPET leaves the translated code (tsc=reliable keeps the TSC), and a security module adds a hook to each
    /// call of the workload.
    #[must_use]
    pub fn kernel_arguments(self) -> String {
        let all = "loglevel=5 panic=-1 oops=panic random.trust_cpu=on nokaslr mitigations=off cryptomgr.notests lsm=";
        match self {
            Arch::X86_64 => {
                // Passed to the guest, because its own measurement at boot is unreliable on a busy host.
                let rate = tsc::khz().map(|khz| format!(" tsc_early_khz={khz}")).unwrap_or_default();
                format!(
                    "console=ttyS0 {all} tsc=reliable{rate} no_timer_check 8250.nr_uarts=2 i8042.nokbd i8042.noaux i8042.nopnp"
                )
            }
            Arch::Aarch64 => format!("console=ttyAMA0 {all}"),
        }
    }

    /// Serial port for the guest's protocol lines; the first port is the kernel's console. `virt` has only one serial
    /// port, so the lines use a virtio port there.
    #[must_use]
    pub fn lines_device(self) -> &'static str {
        match self {
            Arch::X86_64 => "/dev/ttyS1",
            Arch::Aarch64 => "/dev/vport0p1",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn the_processor_is_supported_by_accelerator_and_qemu() {
        assert_eq!(Arch::X86_64.processor("tcg"), "max");
        assert_eq!(Arch::Aarch64.processor("kvm"), "host");
        assert!(!Arch::Aarch64.has_processor("no-such-processor"));
        assert!(["neoverse-n1", "cortex-a72"].contains(&Arch::Aarch64.processor("tcg")));
    }

    #[test]
    fn of_image_detects_the_architecture() {
        let scratch = tempfile::tempdir().expect("a directory");
        let image = |marks: &[(usize, &[u8])]| {
            let mut bytes = vec![0; 0x500];
            for (at, mark) in marks {
                bytes[*at..at + mark.len()].copy_from_slice(mark);
            }
            let path = scratch.path().join("vmlinuz");
            std::fs::write(&path, bytes).expect("written");
            Arch::of_image(&path)
        };
        assert_eq!(image(&[(0x202, b"HdrS")]), Some(Arch::X86_64));
        assert_eq!(image(&[(0x38, b"ARM\x64")]), Some(Arch::Aarch64));
        let zboot: [(usize, &[u8]); 4] = [(0, b"MZ"), (4, b"zimg"), (0x3c, &[0x40, 0, 0, 0]), (0x44, &[0x64, 0xaa])];
        assert_eq!(image(&zboot), Some(Arch::Aarch64));
        assert_eq!(image(&[]), None);
        assert_eq!(Arch::of_image(&scratch.path().join("absent")), None);
    }
}
