//! Linux 2.2.3 with the fix that was proposed first. Its text was not at hand: this is our reading of it, the least
//! change that puts a forgotten buffer on the free list once nobody holds it, without looking first.

use super::{Bforget, Profile, linux_2_2};

pub fn profile() -> Profile {
    let sentence = "2.2.3 with the first proposed fix of __bforget(): always unhashed, on the free list once \
        unreferenced.";
    linux_2_2::profile("linux-2.2.3-proposed-bforget", sentence, Bforget::FreesWhenUnheld)
}
