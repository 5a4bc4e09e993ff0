//! Builds live blocks and sidecars byte by byte, without the library, as an attacker would.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Stem of the shared-memory names of this data file.
pub fn stem_of(data: &Path, id: u64) -> String {
    let side = data.parent().unwrap().join(format!(".{}.precursor", data.file_name().unwrap().to_str().unwrap()));
    let fold = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("precursor-{:016x}-{id:016x}", side.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

#[derive(Debug, Clone, Default)]
pub struct Live {
    pub token: u64,
    pub boot: u128,
    pub data: PathBuf,
    pub position: u64,
    pub ring_bytes: u64,
}

impl Live {
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; 4096];
        let mut put = |at: usize, value: u64| out[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(0, u64::from_le_bytes(*b"prcrsr\x02\x00"));
        put(8, self.token);
        put(24, self.boot as u64);
        put(32, (self.boot >> 64) as u64);
        put(128, self.position);
        put(688, u64::from(self.ring_bytes != 0));
        put(696, self.ring_bytes);
        let path = self.data.as_os_str().as_bytes();
        put(1424, path.len() as u64);
        out[1432..1432 + path.len()].copy_from_slice(path);
        out
    }
}

#[derive(Debug, Clone, Default)]
pub struct Side {
    pub token: u64,
    pub id: u64,
    pub boot: u128,
    pub shm_dir: PathBuf,
}

impl Side {
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"prcrsrS2".to_vec();
        // Generation, token, file, length, flags (the base is known), base, number of the shared memory.
        for value in [1, self.token, 0, 0, 8, 0, self.id] {
            out.extend(u64::to_le_bytes(value));
        }
        out.extend(self.boot.to_le_bytes());
        let dir = self.shm_dir.as_os_str().as_bytes();
        out.extend((dir.len() as u16).to_le_bytes());
        out.extend(dir);
        out.resize(1020, 0);
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out
    }
}

/// Token, shared-memory number and boot from the newest slot of a sidecar.
pub fn secrets(side: &[u8]) -> (u64, u64, u128) {
    let word = |at: usize| u64::from_le_bytes(side[at..at + 8].try_into().unwrap());
    let two = side.len() > 4096 + 80 && side[4096..4104] == *b"prcrsrS2" && word(4096 + 8) > word(8);
    let at = if two { 4096 } else { 0 };
    (word(at + 16), word(at + 56), u128::from(word(at + 64)) | u128::from(word(at + 72)) << 64)
}

/// The kernel's ID of this boot, as the library writes it.
pub fn this_boot() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap()
}
