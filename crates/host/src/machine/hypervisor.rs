//! Detects whether this machine is a guest, and the hypervisor.

use std::fs;

/// `kvm`, `firecracker`, `qemu-tcg`, ...; `None` on bare metal or if unknown.
pub(super) fn detect() -> Option<String> {
    let signature = signature();
    let name = match signature.as_deref() {
        // To its guests Firecracker looks like KVM, but the ACPI tables that it builds carry its name.
        Some("KVMKVMKVM") if acpi_oem().is_some_and(|oem| oem.starts_with("FIRECK")) => "firecracker",
        Some("KVMKVMKVM") => "kvm",
        Some("TCGTCGTCGTCG") => "qemu-tcg",
        Some("Microsoft Hv") => "hyper-v",
        Some("VMwareVMware") => "vmware",
        Some("XenVMMXenVMM") => "xen",
        Some("bhyve bhyve ") => "bhyve",
        Some(other) => return Some(other.trim().to_owned()),
        None => return from_firmware(),
    };
    Some(name.to_owned())
}

/// The hypervisor's signature in CPUID leaf 0x4000_0000, if leaf 1 (ECX bit 31) says that a hypervisor is present.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // the intrinsic is safe in newer compilers, unsafe in the oldest supported one
fn signature() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    // SAFETY: every x86-64 CPU has CPUID and leaf 1.
    if unsafe { __cpuid(1) }.ecx >> 31 == 0 {
        return None;
    }
    // SAFETY: as above; a CPU without this leaf returns another leaf's data.
    let leaf = unsafe { __cpuid(0x4000_0000) };
    let bytes = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    let text = String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
    Some(if text.is_empty() { "unknown".to_owned() } else { text })
}

#[cfg(not(target_arch = "x86_64"))]
fn signature() -> Option<String> {
    None
}

/// The OEM name in the header of an ACPI table (bytes 10 to 15).
fn acpi_oem() -> Option<String> {
    let table = fs::read("/sys/firmware/acpi/tables/DSDT").ok()?;
    table.get(10..16).map(|oem| String::from_utf8_lossy(oem).into_owned())
}

/// The name that Xen or the firmware gives, where CPUID shows none.
fn from_firmware() -> Option<String> {
    if let Ok(kind) = fs::read_to_string("/sys/hypervisor/type") {
        return Some(kind.trim().to_owned());
    }
    let vendor = fs::read_to_string("/sys/class/dmi/id/sys_vendor").ok()?;
    let known =
        [("QEMU", "qemu"), ("Xen", "xen"), ("VMware", "vmware"), ("innotek", "virtualbox"), ("Amazon EC2", "kvm")];
    known.iter().find(|(name, _)| vendor.starts_with(name)).map(|(_, ours)| (*ours).to_owned())
}
