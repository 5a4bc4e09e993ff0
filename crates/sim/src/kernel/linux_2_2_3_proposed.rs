//! Linux 2.2.3 with the fix that was proposed first. Its text was not available: this is the least change that
//! puts a forgotten buffer on the free list once it is unreferenced, without checks.

use super::{Bforget, Profile, Version, linux_2_2};

pub fn profile() -> Profile {
    let sentence = "2.2.3 with the first proposed fix of __bforget(): always unhashed, on the free list once \
        unreferenced.";
    linux_2_2::profile(Version(2, 2, 3), "linux-2.2.3-proposed-bforget", sentence, Bforget::FreesWhenUnheld)
}
