//! Rust mirror of the structures and constants of bpf/slow_calls.h. The tests compare each member and constant with the
//! BTF of the compiled object.

use std::mem::{offset_of, size_of};

/// Mirrors enums of the header: constants, and a table of them for the tests.
macro_rules! mirror_enum {
    ($($(#[$doc:meta])* $module:ident: $type:ty = $original:literal { $($name:ident = $value:literal),* $(,)? })*) => {
        $($(#[$doc])*
        pub mod $module {
            $(#[allow(dead_code, reason = "the whole enum is mirrored")]
            pub const $name: $type = $value;)*
            /// The enum's name in the header.
            #[cfg(test)]
            pub const ORIGINAL: &str = $original;
            #[cfg(test)]
            pub const ALL: &[(&str, i64)] = &[$((stringify!($name), $value)),*];
        })*
    };
}

pub(crate) use mirror_enum;

mirror_enum! {
    size: usize = "size" { STRETCHES = 64, DEPTH = 16, OWN_SLOTS = 256, PATH_BYTES = 128, NAME_BYTES = 48, STACK_FRAMES = 40 }
    /// How the time of a stretch was spent.
    kind: u8 = "stretch_kind" {
        ON_CPU = 0, SAMPLED = 1, ASLEEP = 2, WOKEN = 3, PREEMPTED = 4, THROTTLED = 5, THROTTLED_LATER = 6,
    }
    record: u8 = "record_kind" { PIECE = 1, CALL = 2, FAULT = 3, AFTER_EXIT = 4, FAULT_WHOLE = 5, UNDER_WAY = 6 }
    /// The activity of a thread of another program.
    active: u8 = "call_active" { IN_USER = 0, IN_CALL = 1, IN_FAULT = 2 }
    counter: u32 = "counter" {
        LOST = 0, TOO_DEEP = 1, NO_STATE = 2, UNBALANCED = 3, STACK_ERROR = 4, BUSY = 5, SAMPLES = 6, NO_FILE = 7, NO_PROFILE = 8,
    }
    stack: i32 = "stack_table" { SECOND = 0x4000_0000 }
}

/// One member of a structure: name, offset in bytes, size in bytes.
#[cfg(test)]
pub type Member = (&'static str, usize, usize);

/// Mirrors structures of the header, with a table of members for the tests.
macro_rules! mirror_struct {
    ($($(#[$attribute:meta])* $noun:ident = $original:literal {
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
    })*) => {
        $($(#[$attribute])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $noun { $($(#[$doc])* pub $field: $type),* }

        #[cfg(test)]
        impl $noun {
            /// The structure's name in the header.
            pub const ORIGINAL: &'static str = $original;
            pub const MEMBERS: &'static [Member] =
                &[$((stringify!($field), offset_of!($noun, $field), size_of::<$type>())),*];
        })*
    };
}

pub(crate) use mirror_struct;

mirror_struct! {
    /// An interval of a call's time. A call's stretches are in order of time.
    #[derive(Default, PartialEq, Eq)]
    Stretch = "stretch" {
        ns: u64,
        /// Id of a kernel stack; negative if there is none.
        stack: i32,
        kind: u8,
        bracket: u8,
        count: u16,
    }
    #[derive(Default, PartialEq, Eq)]
    DirtyNumbers = "dirty_numbers" {
        at_ns: u64,
        pause_ms: i64,
        dirty_pages: u64,
        limit_pages: u64,
        wb_dirty_pages: u64,
        wb_setpoint_pages: u64,
        pauses: u64,
    }
    /// The state of a thread's call, as the BPF programs keep and send it.
    CallState = "call_state" {
        op_start_ns: u64,
        start_ns: u64,
        last_ns: u64,
        end_ns: u64,
        wake_ns: u64,
        throttled_ns: u64,
        arg: [u64; 4],
        result: i64,
        position: u64,
        after_exit_ns: u64,
        lock: [u64; size::DEPTH],
        inode: u64,
        inode_number: u64,
        device: u64,
        dirty: DirtyNumbers,
        tid: u32,
        tgid: u32,
        number: i32,
        sleep_stack: i32,
        stretches: u32,
        pieces: u32,
        record: u8,
        active: u8,
        off: u8,
        busy: u8,
        depth: u8,
        after_exit: u8,
        damaged: u8,
        has_position: u8,
        bracket: [u8; size::DEPTH],
        comm: [u8; 16],
        file_kind: u8,
        file_named: u8,
        beside: u8,
        in_profile: u8,
        unused: [u8; 4],
        profile_end_ns: u64,
        profile_offset: u64,
        profile_address: u64,
        profile_inode: u64,
        profile_bytes: u64,
        profile_comm: [u64; 2],
        profile_device: u32,
        profile_flags: u32,
        profile_writes: u32,
        profile_unused: u32,
        path: [u8; size::PATH_BYTES],
        name: [u8; size::NAME_BYTES],
        stretch: [Stretch; size::STRETCHES],
    }
}

// SAFETY: only integers and arrays of integers: every bit pattern is valid.
unsafe impl aya::Pod for CallState {}

/// Bytes before the stretches, which every record contains.
pub const HEAD_BYTES: usize = offset_of!(CallState, stretch);

impl CallState {
    /// Parses a record from the ring buffer: the head, and as many stretches as it contains. `None` if it is shorter
    /// than the head.
    #[must_use]
    pub fn from_record(bytes: &[u8]) -> Option<CallState> {
        if bytes.len() < HEAD_BYTES {
            return None;
        }
        let take = bytes.len().min(size_of::<CallState>());
        let mut state = std::mem::MaybeUninit::<CallState>::zeroed();
        // SAFETY: `take` is at most the size of the source and of the destination, which cannot overlap; every bit
        // pattern is a valid CallState, since it contains only integers.
        let mut state = unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), state.as_mut_ptr().cast::<u8>(), take);
            state.assume_init()
        };
        let complete = (take - HEAD_BYTES) / size_of::<Stretch>();
        state.stretches = state.stretches.min(complete as u32);
        Some(state)
    }

    #[must_use]
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretch[..(self.stretches as usize).min(size::STRETCHES)]
    }
}

/// Text up to the first zero byte.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{
        CallState, DirtyNumbers, HEAD_BYTES, Member, Stretch, active, counter, kind, record, size, stack, text,
    };
    use crate::tracer::btf::Types;
    use crate::tracer::variant;
    use flatwater_recording::brackets;

    /// The types of each variant of the object.
    fn types() -> Vec<Types> {
        let of = |variant: &variant::Variant| {
            let built = !variant.object.is_empty();
            assert!(built, "built without clang: the mirror cannot be compared with the object");
            Types::of_object(&variant.object.elf()).expect("an object with BTF")
        };
        variant::ALL.iter().map(of).collect()
    }

    /// Name, size and members of each mirrored structure.
    const STRUCTS: [(&str, usize, &[Member]); 3] = [
        (Stretch::ORIGINAL, size_of::<Stretch>(), Stretch::MEMBERS),
        (DirtyNumbers::ORIGINAL, size_of::<DirtyNumbers>(), DirtyNumbers::MEMBERS),
        (CallState::ORIGINAL, size_of::<CallState>(), CallState::MEMBERS),
    ];

    #[test]
    fn structures_match_the_object() {
        for (types, (name, size, members)) in types().iter().flat_map(|types| STRUCTS.map(|known| (types, known))) {
            types.assert_struct(name, size, members);
        }
    }

    #[test]
    fn constants_match_the_object() {
        let types = types().remove(0);
        for (name, prefix, ours) in [
            (size::ORIGINAL, "", size::ALL),
            (kind::ORIGINAL, "", kind::ALL),
            (record::ORIGINAL, "R_", record::ALL),
            (active::ORIGINAL, "", active::ALL),
            (counter::ORIGINAL, "C_", counter::ALL),
            (stack::ORIGINAL, "STACK_", stack::ALL),
        ] {
            types.assert_enum(name, prefix, ours, "COUNTERS");
        }
    }

    #[test]
    fn brackets_match_the_object() {
        let types = types().remove(0);
        let original = types.enumeration("bracket").expect("enum bracket");
        let ours = brackets().map(|(number, _, bracket)| (format!("B_{}", bracket.name), i64::from(number)));
        let ours: Vec<(String, i64)> = std::iter::once(("B_NONE".to_owned(), 0)).chain(ours).collect();
        assert_eq!(original, ours);
    }

    #[test]
    fn a_short_record_is_refused_and_a_wrong_count_is_limited() {
        assert!(CallState::from_record(&[0; 10]).is_none());
        let state = CallState::from_record(&[0xff; HEAD_BYTES + 16]).expect("a head and one stretch");
        assert_eq!(state.stretches().len(), 1);
    }

    #[test]
    fn text_ends_at_the_first_zero() {
        assert_eq!(text(b"cat\0\0x"), "cat");
    }
}
