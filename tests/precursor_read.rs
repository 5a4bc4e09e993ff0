//! `flatwater precursor cat` and `tail`: what they print, and what they say about files that they cannot read whole.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use precursor::{Framing, Mode, Options};

fn cat(args: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.args(["precursor", "cat"]).args(args).arg(file).output().unwrap()
}

fn printed(args: &[&str], file: &Path) -> String {
    let output = cat(args, file);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(file: &Path) -> String {
    let output = cat(&[], file);
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn options(file: &Path) -> Options {
    let roll_bytes = if file.to_string_lossy().contains("{}") { 4096 } else { 0 };
    Options::new(file).mode(Mode::Plain).framing(Framing::Records).roll_bytes(roll_bytes)
}

#[test]
fn cat_prints_every_record_from_where_it_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log-{}");
    let mut log = options(&file).open().unwrap();
    let lines: Vec<String> = (0..200).map(|i| format!("record {i} {}", "x".repeat(i % 90))).collect();
    let ends: Vec<u64> = lines.iter().map(|line| log.append(line.as_bytes()).unwrap().bytes()).collect();
    // While the writer lives, and after it.
    assert_eq!(printed(&[], &file), lines.join("\n") + "\n");
    log.close().unwrap();
    assert_eq!(printed(&[], &file), lines.join("\n") + "\n");
    assert_eq!(printed(&["--raw"], &file), lines.concat());
    assert_eq!(printed(&["--number", "150"], &file), lines[150..].join("\n") + "\n");
    assert_eq!(printed(&["--after", &ends[150].to_string()], &file), lines[151..].join("\n") + "\n");
    let heads = printed(&["--heads", "--number", "199"], &file);
    assert_eq!(heads, format!("199 - {} {} {}\n", ends[199], lines[199].len(), lines[199]));
}

#[test]
fn cat_names_what_is_wrong_with_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log");
    assert!(refused(&file).contains("does not exist"));
    std::fs::write(&file, "not a file of the library, but text of more than sixty-four bytes in length").unwrap();
    assert!(refused(&file).contains("neither the header nor the frames"));
    std::fs::remove_file(&file).unwrap();
    let mut log = options(&file).open().unwrap();
    for i in 0..10 {
        log.append(format!("record {i}").as_bytes()).unwrap();
    }
    log.close().unwrap();
    let whole = std::fs::read(&file).unwrap();

    std::fs::write(&file, &whole[..whole.len() - 10]).unwrap();
    let torn = cat(&[], &file);
    assert!(!torn.status.success() && String::from_utf8_lossy(&torn.stderr).contains("not whole records"), "{torn:?}");
    assert_eq!(torn.stdout.split(|byte| *byte == b'\n').count(), 10, "nine records and the end of the output");

    let mut later = whole.clone();
    later[8] = 9;
    let crc = crc32(&later[..60]);
    later[60..64].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&file, &later).unwrap();
    assert!(refused(&file).contains("format 9"));
    std::fs::write(&file, [&whole[..20], &[0xff], &whole[21..]].concat()).unwrap();
    assert!(refused(&file).contains("damaged at byte 0"));
}

/// CRC-32, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[test]
fn cat_reports_missing_files_and_continues() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log-{}");
    let mut log = options(&file).open().unwrap();
    for i in 0..300 {
        log.append(format!("record {i}").as_bytes()).unwrap();
    }
    log.close().unwrap();
    std::fs::remove_file(dir.path().join("log-00000001")).unwrap();
    let output = cat(&[], &file);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("are missing"), "{text}");
    assert!(text.contains("record 0\n") && text.contains("record 299\n") && text.lines().count() < 300);
}

#[test]
fn tail_prints_what_is_appended_and_survives_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log");
    let mut log = options(&file).mode(Mode::Ring).open().unwrap();
    log.append(b"before").unwrap();
    let mut tail = Command::new(env!("CARGO_BIN_EXE_flatwater"))
        .args(["precursor", "tail", "--number", "0"])
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "before");
    log.append(b"one").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    log.close().unwrap();
    let mut log = options(&file).open().unwrap();
    log.append(b"of the next writer").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "of the next writer");
    log.close().unwrap();
    assert!(Command::new("kill").arg(tail.id().to_string()).status().unwrap().success());
    assert!(tail.wait().unwrap().success());
}
