//! The follower, with this test process as the writer.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use super::{Descriptor, Event, FollowOptions, Follower, Help, Uncut};
use crate::process::parse;

const OPTIONS: FollowOptions = FollowOptions { memory_bytes_max: 4 << 20, extend: false };

/// Steps until there is an event, or a nap of at least 1 ms.
fn until_event(follower: &mut Follower) -> Option<Event> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        let (nap_ns, event) = follower.step().unwrap();
        if event.is_some() {
            return event;
        }
        if nap_ns >= 1_000_000 {
            return None;
        }
    }
    panic!("the follower never rests");
}

fn follow(file: &std::path::Path, options: FollowOptions) -> (Follower, Help) {
    let mut follower = Follower::attach(std::process::id(), file, options).unwrap();
    match until_event(&mut follower) {
        Some(Event::Following { help, .. }) => (follower, help),
        other => panic!("{other:?}"),
    }
}

#[test]
fn fdinfo_is_read_and_rubbish_is_not() {
    let text = "pos:\t4400\nflags:\t0102001\nmnt_id:\t30\nino:\t7\n";
    assert_eq!(parse(text), Some(Descriptor { position: 4400, flags: 0o102_001 }));
    assert_eq!(parse("pos:\tx\nflags:\t01\n"), None);
    assert_eq!(parse(""), None);
}

#[test]
fn a_preallocated_file_is_kept_warm_before_its_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("log");
    let mut file = std::fs::File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    let (mut follower, help) = follow(&path, OPTIONS);
    assert_eq!(help, Help::Full);
    for _ in 0..20 {
        file.write_all(&[7; 100_000]).unwrap();
        until_event(&mut follower);
        let stats = follower.stats();
        assert!(stats.warm > stats.position, "{stats:?}");
    }
    assert_eq!(follower.stats().position, 2_000_000);
    file.set_len(1000).unwrap();
    assert_eq!(until_event(&mut follower), Some(Event::Truncated));
    drop(file);
    assert_eq!(until_event(&mut follower), Some(Event::Closed));
}

#[test]
fn a_file_made_longer_is_cut_when_its_writer_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("log");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&[7; 500]).unwrap();
    let (mut follower, help) = follow(&path, FollowOptions { extend: true, ..OPTIONS });
    assert_eq!(help, Help::Full);
    until_event(&mut follower);
    file.write_all(&[8; 500]).unwrap();
    until_event(&mut follower);
    assert!(std::fs::metadata(&path).unwrap().len() > 1 << 20);
    drop(file);
    assert_eq!(until_event(&mut follower), Some(Event::Closed));
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes == [[7; 500], [8; 500]].concat(), "{} bytes", bytes.len());
}

#[test]
fn ways_of_writing_that_cannot_be_helped_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("log");
    let mut plain = std::fs::OpenOptions::new();
    plain.write(true).create(true);
    for (options, word) in [
        (plain.clone().append(true).clone(), "O_APPEND"),
        (plain.clone().custom_flags(libc::O_DIRECT).clone(), "O_DIRECT"),
        (plain.clone(), "--extend"),
    ] {
        let file = options.open(&path).unwrap();
        let (mut follower, help) = follow(&path, OPTIONS);
        assert_eq!(until_event(&mut follower), None, "{word}: unexpected event");
        drop(file);
        match help {
            Help::BlocksOnly(why) | Help::None(why) => assert!(why.contains(word), "{why}"),
            Help::Full => panic!("{word}: full help was promised"),
        }
    }
    assert!(Follower::attach(u32::MAX, &path, OPTIONS).is_err());
}

#[test]
fn a_file_cut_below_its_writer_is_reported_and_followed_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
    file.write_all(&[1; 300_000]).unwrap();
    let (mut follower, help) = follow(&path, OPTIONS);
    assert!(matches!(help, Help::BlocksOnly(_)), "{help:?}");
    assert_eq!(until_event(&mut follower), None);
    file.set_len(100).unwrap();
    assert_eq!(until_event(&mut follower), Some(Event::Truncated));
    // Reported once, although the program's position is still beyond the end.
    assert_eq!(until_event(&mut follower), None);
    file.write_all(&[2; 1000]).unwrap();
    assert_eq!(until_event(&mut follower), None);
    assert_eq!(follower.stats().position, 1100);
}

#[test]
fn a_position_that_does_not_move_while_its_process_writes_is_reported() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let (mut follower, _) = follow(&path, OPTIONS);
    let begun = Instant::now();
    let event = loop {
        file.write_all_at(&[1; 100], 4096).unwrap();
        let (_, event) = follower.step().unwrap();
        if event.is_some() || begun.elapsed() > Duration::from_secs(30) {
            break event;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(matches!(event, Some(Event::Still(bytes)) if bytes >= 100), "{event:?}");
}

#[test]
fn bytes_written_elsewhere_than_at_the_position_are_never_cut() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("log");
    for extend in [true, false] {
        let file = std::fs::File::create(&path).unwrap();
        file.write_all_at(&[1; 8000], 0).unwrap();
        let (mut follower, _) = follow(&path, FollowOptions { extend, ..OPTIONS });
        assert_eq!(until_event(&mut follower), None);
        file.write_all_at(&[2; 8000], 8000).unwrap();
        let len = std::fs::metadata(&path).unwrap().len();
        assert_eq!(len > 16_000, extend, "only the option makes a file longer");
        drop(file);
        match until_event(&mut follower) {
            Some(Event::ClosedUncut(Uncut::Elsewhere(of))) => assert!(extend && of == path),
            Some(Event::Closed) => assert!(!extend),
            other => panic!("{other:?}"),
        }
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[..16_000] == [[1; 8000], [2; 8000]].concat(), "{} bytes", bytes.len());
    }
}

/// S4: another user may replace the file, also by a link, after the follower has found it and before it opens it.
#[test]
fn a_name_that_now_refers_to_another_file_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let file = std::fs::File::create(&path).unwrap();
    let (pid, fd) = (std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&file) as u32);
    let names = crate::files::Names::of(&path).unwrap();
    let (own, _) = super::own(pid, fd, &names, 0).unwrap();
    assert_eq!(crate::handles::identity(&own).unwrap(), crate::handles::identity(&file).unwrap());
    let target = dir.path().join("target");
    std::fs::write(&target, b"not to be touched").unwrap();
    std::fs::rename(&path, dir.path().join("away")).unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    let refusal = super::own(pid, fd, &names, 0).unwrap_err().to_string();
    assert!(refusal.contains("another file"), "{refusal}");
    std::fs::remove_file(&path).unwrap();
    std::fs::hard_link(&target, &path).unwrap();
    super::own(pid, fd, &names, 0).unwrap_err();
}
