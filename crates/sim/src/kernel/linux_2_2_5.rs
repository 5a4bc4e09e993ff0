//! Linux 2.2.5: bforget puts a buffer that only its caller holds at the end of the free list.

use super::{Bforget, Profile, Version, linux_2_2};

pub fn profile() -> Profile {
    let sentence = "2.2.5: fs/buffer.c, __bforget() releases a shared or locked buffer, else put_last_free().";
    linux_2_2::profile(Version(2, 2, 5), "linux-2.2.5", sentence, Bforget::PutsLastFree)
}
