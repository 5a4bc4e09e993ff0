//! The compiled BPF programs in this binary. build.rs compresses them to a sixth of their size.

use std::io::Read;

use flate2::read::GzDecoder;

/// A compressed ELF object; empty if this build had no clang.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BpfObject(&'static [u8]);

impl BpfObject {
    pub const fn new(compressed: &'static [u8]) -> BpfObject {
        BpfObject(compressed)
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The ELF object; empty if this build had no clang.
    pub fn elf(self) -> Vec<u8> {
        let mut elf = Vec::new();
        if !self.is_empty() {
            GzDecoder::new(self.0).read_to_end(&mut elf).expect("build.rs compressed it");
        }
        elf
    }
}

/// An object of build.rs by its file's name.
macro_rules! bpf_object {
    ($name:literal) => {
        $crate::bpf_object::BpfObject::new(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o.gz")))
    };
}
pub(crate) use bpf_object;
