//! Linux 2.2.3: bforget makes orphans.

use super::{Bforget, Profile, Version, linux_2_2};

pub fn profile() -> Profile {
    let sentence = "2.2.3: fs/buffer.c, __bforget() leaves a forgotten buffer nameless on the clean list.";
    linux_2_2::profile(Version(2, 2, 3), "linux-2.2.3", sentence, Bforget::Orphans)
}
