//! Which machine gets which mode, and which reasons are reported.

use super::{Facts, FileSystem, Wants, choose, examine};
use crate::budget::{Limits, Shares};
use crate::lasting::Removal;
use crate::mode::Mode;

fn modern() -> Facts {
    Facts {
        kernel: (6, 18),
        file_system: FileSystem::InPlace,
        fallocate: true,
        shm: true,
        removal: None,
        swap: false,
        limits: Limits::default(),
    }
}

fn wants() -> Wants {
    Wants {
        readable_at_once: false,
        many_producers: false,
        framed: false,
        process_death_may_lose: false,
        memory_bytes: 8 << 20,
        shares: Shares::default(),
    }
}

#[test]
fn a_modern_machine_gets_a_ring() {
    let choice = choose(&modern(), &wants());
    assert_eq!((choice.mode, choice.locked), (Mode::Ring, true));
    assert!(choice.reasons.iter().any(|r| r.starts_with("ring:")), "{:?}", choice.reasons);
}

#[test]
fn readers_that_follow_the_file_get_a_window() {
    let choice = choose(&modern(), &Wants { readable_at_once: true, ..wants() });
    assert_eq!(choice.mode, Mode::Window);
    assert!(choice.reasons.iter().any(|r| r.starts_with("not ring:")), "{:?}", choice.reasons);
}

#[test]
fn a_window_is_refused_where_its_promise_would_be_empty() {
    let follow = Wants { readable_at_once: true, ..wants() };
    for facts in [
        Facts { file_system: FileSystem::CopyOnWrite, ..modern() },
        Facts { file_system: FileSystem::Remote, ..modern() },
        Facts { fallocate: false, ..modern() },
        Facts { kernel: (5, 13), ..modern() },
        Facts { limits: Limits { memlock_bytes: Some(64 << 10), ..Limits::default() }, ..modern() },
    ] {
        let choice = choose(&facts, &follow);
        assert_eq!(choice.mode, Mode::Plain, "{facts:?}");
        assert!(choice.reasons.iter().any(|r| r.starts_with("not window:")), "{:?}", choice.reasons);
        assert!(examine(Mode::Window, &facts, &follow).is_err());
    }
}

#[test]
fn an_old_kernel_without_limits_gets_the_old_cure() {
    let old = Facts { kernel: (2, 6), shm: false, ..modern() };
    assert_eq!(choose(&old, &Wants { framed: true, ..wants() }).mode, Mode::Prefetch);
    assert_eq!(choose(&old, &Wants { process_death_may_lose: true, ..wants() }).mode, Mode::Prefetch);
    assert_eq!(choose(&old, &wants()).mode, Mode::Plain);
    let limited = Facts { limits: Limits { cgroup_bytes: Some(1 << 30), ..Limits::default() }, ..old };
    assert_eq!(choose(&limited, &Wants { framed: true, ..wants() }).mode, Mode::Plain);
}

#[test]
fn a_ring_without_lock_rights_says_so_and_depends_on_swap() {
    let small = Limits { memlock_bytes: Some(64 << 10), ..Limits::default() };
    let no_swap = choose(&Facts { limits: small, ..modern() }, &wants());
    assert_eq!((no_swap.mode, no_swap.locked), (Mode::Ring, false));
    assert!(no_swap.reasons.iter().any(|r| r.contains("not locked")), "{:?}", no_swap.reasons);
    let swap = choose(&Facts { limits: small, swap: true, ..modern() }, &wants());
    assert_eq!(swap.mode, Mode::Plain);
}

#[test]
fn many_producers_share_a_ring_or_nothing() {
    let many = Wants { many_producers: true, ..wants() };
    assert_eq!(choose(&modern(), &many).mode, Mode::Ring);
    for mode in [Mode::Window, Mode::Prefetch, Mode::Plain] {
        assert!(examine(mode, &modern(), &many).is_err(), "{}", mode.name());
    }
}

/// `auto` keeps the records that `write()` would have kept, unless the caller allows less.
#[test]
fn auto_is_never_weaker_than_write_unasked() {
    let framed = Wants { framed: true, ..wants() };
    let allowed = Wants { process_death_may_lose: true, ..wants() };
    let many = Wants { many_producers: true, ..wants() };
    for removal in [Removal::Container, Removal::Logout] {
        let facts = Facts { removal: Some(removal), ..modern() };
        let unframed = choose(&facts, &wants());
        assert_eq!(unframed.mode, Mode::Plain, "{:?}", unframed.reasons);
        let reasons = unframed.reasons.join("; ");
        assert!(reasons.contains("not ring") && reasons.contains("process_death_may_lose"), "{reasons}");
        assert!(reasons.contains("not window") && reasons.contains("frame the records"), "{reasons}");
        let window = choose(&facts, &framed);
        assert_eq!((window.mode, window.ring_beside), (Mode::Window, false), "{:?}", window.reasons);
        for wants in [allowed, many, Wants { framed: true, ..allowed }] {
            assert_eq!(choose(&facts, &wants).mode, Mode::Ring);
        }
        let window = choose(&facts, &Wants { readable_at_once: true, ..allowed });
        assert_eq!((window.mode, window.ring_beside), (Mode::Window, true));
        // A mode requested by name needs no permission.
        for mode in [Mode::Ring, Mode::Window, Mode::Prefetch] {
            assert_eq!(examine(mode, &facts, &wants()).unwrap().mode, mode);
        }
    }
    let nowhere = Facts { shm: false, ..modern() };
    assert_eq!(choose(&nowhere, &wants()).mode, Mode::Plain);
    assert_eq!(choose(&nowhere, &framed).mode, Mode::Window);
    assert_eq!(choose(&nowhere, &allowed).mode, Mode::Window);
}

/// The reason names the limit that is too small, with the remedy for it.
#[test]
fn memory_that_cannot_be_locked_is_explained_by_its_limit() {
    let small = Some(512 << 10);
    let cgroup = Limits { cgroup_bytes: small, memlock_bytes: Some(1 << 30), ..Limits::default() };
    let memlock = Limits { memlock_bytes: small, cgroup_bytes: Some(1 << 40), ..Limits::default() };
    for (limits, named, other) in [(cgroup, "memory limit", "MEMLOCK"), (memlock, "MEMLOCK", "memory limit")] {
        for swap in [false, true] {
            let facts = Facts { limits, swap, ..modern() };
            let reasons = choose(&facts, &wants()).reasons.join("; ");
            let refusal = examine(Mode::Window, &facts, &wants()).unwrap_err().to_string();
            for text in [reasons.split("run-ahead").next().unwrap(), refusal.as_str()] {
                assert!(text.contains(named) && !text.contains(other), "{named}: {text}");
            }
        }
    }
}
