//! Functions of the fuzz targets and of the test that replays their corpus. The first byte of most inputs selects how the
//! other bytes are read.

#![allow(dead_code)] // each user calls only one of the functions

use std::fs;

use flatwater_host::proc::sheet::Filled;
use flatwater_host::proc::{Sheet, bdi, buddyinfo, cgroup, disk, meminfo, pressure, slabinfo, stat, vmstat, zoneinfo};
use flatwater_import::text::{Cursor, Text};
use flatwater_import::{Builder, IMPORTERS, import_texts, read_section};
use flatwater_recording::{Call, Recording, Table, read};

/// One table for each way of decoding.
const TABLES: [&str; 6] = ["calls", "latency", "stacks", "events", "gaps", "zones"];

/// Reads bytes as a recording. The first byte is 6 x kind + table. Kinds: 0 a file of frames, 1 payloads that get valid
/// frames (a 16-bit length precedes each), 2 a Parquet file, 3 header.json, 4 sealed.json beside frames.
pub fn read_as_recording(bytes: &[u8]) {
    let Some((&choice, body)) = bytes.split_first() else { return };
    let table = TABLES[usize::from(choice) % TABLES.len()];
    let place = tempfile::tempdir().expect("temporary directory");
    let put = |name: &str, body: &[u8]| fs::write(place.path().join(name), body).expect("written");
    put("header.json", b"{}");
    match usize::from(choice) / TABLES.len() {
        0 => put(&format!("{table}.frames"), body),
        1 => put(&format!("{table}.frames"), &framed(body)),
        2 => put(&format!("{table}.parquet"), body),
        3 => put("header.json", body),
        _ => put("sealed.json", body),
    }
    if let Ok(recording) = read(place.path()) {
        check(&recording);
    }
}

/// Checks what is true of every recording.
fn check(recording: &Recording) {
    assert!(recording.calls.iter().all(Call::tiles));
    for series in &recording.series {
        assert!(series.columns.iter().all(|column| [0, series.len()].contains(&column.values().len())));
    }
}

/// Imports any bytes as a log, with recognition of the format. Once as one file and once as two halves, so that joining
/// by time is covered too.
pub fn import_as_a_user(bytes: &[u8]) {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let halves = [("first".to_owned(), first.to_vec()), ("second".to_owned(), second.to_vec())];
    for given in [&[("whole".to_owned(), bytes.to_vec())][..], &halves[..]] {
        let Ok(imported) = import_texts(given) else { continue };
        check(&imported.recording);
        assert!(imported.recording.series.iter().all(|series| series.at_ns().is_sorted()));
    }
}

/// Imports text with the importer that the first byte selects, whether or not it resembles that format.
pub fn import_as_chosen(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let Some(importer) = IMPORTERS.get(usize::from(choice) % IMPORTERS.len()) else { return };
    let text = Text::new(bytes);
    let mut cursor = Cursor::new(&text);
    let mut builder = Builder::default();
    builder.begin_file("fuzz");
    while cursor.peek().is_some() {
        read_section(importer, &mut cursor, &mut builder);
    }
    builder.end_file();
    check(&builder.finish(&["fuzz".to_owned()]));
}

/// Puts payloads into valid frames, so that a wrong checksum does not end every read early.
fn framed(mut body: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut sequence = 0_u32;
    while let Some((length, rest)) = body.split_first_chunk::<2>() {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
        body = rest;
        let fields = [payload.len() as u32, sequence, 0].map(u32::to_le_bytes).concat();
        let crc = crc32fast::hash(&[fields.as_slice(), payload].concat());
        file.extend(b"FWf1");
        file.extend(&fields);
        file.extend(crc.to_le_bytes());
        file.extend(payload);
        sequence += 1;
    }
    file
}

/// Parses text as the kernel file that the first byte selects.
pub fn parse_as_kernel_file(bytes: &[u8]) {
    let Some((&choice, text)) = bytes.split_first() else { return };
    let (table, second) = match choice % 10 {
        0 => (Table::Zones, Table::Nodes),
        1 => (Table::Vmstat, Table::Writeback),
        2 => (Table::Cpu, Table::Cpu),
        3 => (Table::Buddy, Table::Buddy),
        4 => (Table::Slabs, Table::Slabs),
        5 => (Table::Meminfo, Table::Meminfo),
        6 => (Table::Pressure, Table::Pressure),
        7 => (Table::Disks, Table::Disks),
        8 => (Table::Writeback, Table::Writeback),
        _ => (Table::Cgroup, Table::Cgroup),
    };
    let (mut sheet, mut other) = (Sheet::new(table), Sheet::new(second));
    // Twice: the second read expects the keys of the first.
    for at_ns in [1, 2] {
        match choice % 10 {
            0 => zoneinfo::read(text, at_ns, &mut sheet, &mut other),
            1 => vmstat::read(text, at_ns, 4096, &mut sheet, &mut other),
            2 => stat::read(text, at_ns, 10_000_000, true, &mut sheet),
            3 => buddyinfo::read(text, at_ns, &mut sheet),
            4 => slabinfo::read(text, at_ns, &mut sheet),
            kind => {
                sheet.open(at_ns, None, b"one");
                match kind {
                    5 => meminfo::read(text, "", &mut sheet),
                    6 => pressure::read(text, &mut sheet, &pressure::OF_MACHINE),
                    7 => disk::read(text, &mut sheet),
                    8 => bdi::read(text, &mut sheet),
                    _ => {
                        cgroup::V1.iter().chain(cgroup::V2).for_each(|(_, file)| cgroup::read(text, *file, &mut sheet))
                    }
                }
            }
        }
    }
    for mut sheet in [sheet, other] {
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        let series = sheet.series(&filled);
        assert!(series.columns.iter().all(|column| [0, series.len()].contains(&column.values().len())));
    }
}
