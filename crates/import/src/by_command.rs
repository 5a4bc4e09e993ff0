//! Reads values that are alone on their line. The command above names them (`cat memory.usage_in_bytes`, `nproc`), or
//! their form does (/proc/loadavg).

use super::builder::{Builder, Cell};
use super::kernel_files::cgroup_file;
use super::number::{count, rounded};
use flatwater_recording::schema::cpu;
use flatwater_recording::{Entity, FormatKind, Table};

/// Reads the line if it is such a value, and returns the format's name and kind.
pub fn value(text: &str, b: &mut Builder) -> Option<(&'static str, FormatKind)> {
    let text = text.trim();
    if text.len() > 64 || !text.starts_with(|c: char| c.is_ascii_digit()) && text != "max" {
        return None;
    }
    load_average(text, b).or_else(|| of_cgroup(text, b)).or_else(|| processors(text, b))
}

/// `0.04 0.11 0.06 9/147 7494`: load over 1, 5 and 15 minutes, runnable tasks, all tasks, last pid.
fn load_average(text: &str, b: &mut Builder) -> Option<(&'static str, FormatKind)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [one, five, fifteen, tasks, pid] = *words.as_slice() else { return None };
    let (ready, all) = tasks.split_once('/')?;
    let (ready, _, _) = (count(ready)?, count(all)?, count(pid)?);
    let load = |word: &str| word.contains('.').then(|| word.parse::<f64>().ok()).flatten().filter(|load| *load >= 0.0);
    let centi = |load: f64| Cell::Gauge(rounded(load * 100.0));
    let cells = [
        (cpu::LOAD1_CENTI, centi(load(one)?)),
        (cpu::LOAD5_CENTI, centi(load(five)?)),
        (cpu::LOAD15_CENTI, centi(load(fifteen)?)),
        // The reading process itself is runnable.
        (cpu::PROCS_RUNNING, Cell::Gauge((ready - 1).max(0))),
    ];
    let place = b.snapshot("loadavg");
    b.row(place, Table::Cpu, &Entity::named("all"), &cells);
    Some(("loadavg", FormatKind::Averages))
}

/// Reads the value of a cgroup's file, below the command that printed the file.
fn of_cgroup(text: &str, b: &mut Builder) -> Option<(&'static str, FormatKind)> {
    let command = b.context().command.clone()?;
    let path = command.split_whitespace().find(|word| cgroup_file(word).is_some())?;
    let column = cgroup_file(path)?;
    let value = count(text);
    (value.is_some() || text == "max").then_some(())?;
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let folder = folder.strip_prefix("/sys/fs/cgroup").unwrap_or(folder);
    let entity = Entity::named(if folder.is_empty() { "/" } else { folder });
    // `max` means no limit, and so does the largest number of pages in v1.
    let value = value.filter(|value| *value < i64::MAX - (1 << 20));
    // `cat memory.max memory.current` prints one line for each file.
    let rest: Vec<&str> = command.split_whitespace().filter(|word| *word != path).collect();
    b.context_mut().command = rest.iter().any(|word| cgroup_file(word).is_some()).then(|| rest.join(" "));
    if let Some(value) = value {
        let place = b.snapshot_of("cgroup-files", column.name);
        b.row(place, Table::Cgroup, &entity, &[(column, Cell::of(column.kind, value))]);
    }
    Some(("cgroup-files", FormatKind::Group))
}

fn processors(text: &str, b: &mut Builder) -> Option<(&'static str, FormatKind)> {
    let command = b.context().command.as_deref()?.trim();
    let counted = command == "nproc" || command.contains("grep -c processor") || command.contains("grep -c ^processor");
    let cpus = text.parse::<u32>().ok().filter(|cpus| counted && (1..=8192).contains(cpus))?;
    b.machine.cpus.get_or_insert(cpus);
    b.context_mut().command = None;
    Some(("settings", FormatKind::Averages))
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::{cgroup, cpu};

    #[test]
    fn a_value_below_its_command_is_read() {
        let text = "sh-4.2$ cat memory.usage_in_bytes\n501346304\nsh-4.2$ cat memory.limit_in_bytes\n524288000\n\
            # cat /sys/fs/cgroup/memory.max\nmax\n# nproc\n4\n$ cat /proc/loadavg\n0.04 0.11 0.06 9/147 7494\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let (_, rows) = recording.table(Table::Cgroup).expect("a table").by_entity().next().expect("a cgroup");
        assert_eq!(rows.last(cgroup::USAGE_BYTES), Some(501_346_304));
        assert_eq!(rows.last(cgroup::LIMIT_BYTES), Some(524_288_000));
        let (_, rows) = recording.table(Table::Cpu).expect("a table").by_entity().next().expect("all CPUs");
        assert_eq!((rows.last(cpu::PROCS_RUNNING), rows.last(cpu::LOAD1_CENTI)), (Some(8), Some(4)));
        assert_eq!(recording.header.machine.cpus, Some(4));
        let read = recording.header.import.expect("a summary");
        assert_eq!(read.lines, read.understood, "{:?}", read.not_understood);
    }

    #[test]
    fn a_limit_of_1_gib_is_not_a_time_and_one_command_prints_two_values() {
        let text = "/ # cat /sys/fs/cgroup/memory.max\n1073741824\n/ # cat /sys/fs/cgroup/memory.current\n1073737728\n";
        let both = "$ cat memory.max memory.current\n1073741824\n1073737728\n";
        for text in [text, both] {
            let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
            let (_, rows) = recording.table(Table::Cgroup).expect("a table").by_entity().next().expect("a cgroup");
            let read = (rows.last(cgroup::LIMIT_BYTES), rows.last(cgroup::USAGE_BYTES));
            assert_eq!(read, (Some(1_073_741_824), Some(1_073_737_728)), "{text}");
        }
    }

    #[test]
    fn a_number_without_a_command_is_ignored() {
        assert!(import_texts(&[("f".to_owned(), b"12\n13\n1.0 2.0 3.0 4 5\n".to_vec())]).is_err());
    }
}
