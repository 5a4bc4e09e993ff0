//! Largest and smallest machines and scenarios: beyond these bounds a run would use up memory or not end.

use crate::constant::constants;
use crate::kernel::PAGE_BYTES;
use crate::kernel::Profile;
use crate::machine::build::Shape;
use crate::machine::model_inputs::ModelInputs;
use crate::mm::memory::Mm;
use crate::run::SimError;
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_workload::scenario::{MachineSpec, Scenario};

constants! {
    const CPUS_MAX: u64 = assumed(4096, "lists of each CPU and zone take memory and time at each sample");
    const NODES_MAX: u64 = assumed(64, "zonelists of as many zones (alloc)");
    const NODE_BYTES_MIN: u64 = assumed(32 << 20, "zones of less have watermarks of a few pages");
    /// The model needs up to six bytes for a page of page cache.
    const MEMORY_BYTES_MAX: u64 = assumed(2 << 40, "six bytes a page are 3 GiB");
    const OLD_MEMORY_BYTES_MAX: u64 = kernel(4 << 30, "include/asm-i386/page.h", "32 bits without PAE", "2.2.1");
    const LEFT_BYTES_MIN: u64 = assumed(8 << 20, "inodes and dentries of what the scenario has open");
    const FILES_MAX: u64 = assumed(12 << 20, "what is known of an allocated file takes 250 bytes: 3 GiB");
    const FILE_BYTES_MAX: u64 = assumed(16 << 40, "what is known of each 128 KiB of a file takes 26 bytes: 3 GiB");
    /// Of free memory and page cache, percent: the rest is for watermarks and slabs.
    const TAKEN_PERCENT_MAX: u64 = assumed(90, "watermarks, slabs and page blocks that the kernel keeps");
}

/// A setting that is too large or too small.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    #[error("machine.cpus is {0}: it can be 1 to {max}", max = CPUS_MAX.get())]
    Cpus(u32),
    #[error("every node needs {min} or more, and there can be at most {max} (machine.nodes)", min = Bytes(NODE_BYTES_MIN.get()), max = NODES_MAX.get())]
    Nodes,
    #[error("its nodes have {0} together: {1} at most (machine.nodes)")]
    Memory(Bytes, Bytes),
    #[error("of node {0} {1} are left by machine.reserved and machine.resident: {min} at least", min = Bytes(LEFT_BYTES_MIN.get()))]
    Left(usize, Bytes),
    #[error("'{0}' is not an input of the model; its inputs are {1}")]
    UnknownInput(String, String),
    #[error("{key} is '{value}': use a whole number of at most {most}")]
    Input { key: String, value: String, most: u64 },
    #[error("model.process_memory is {0}, and processes can have {1} of this machine")]
    ProcessMemory(Bytes, Bytes),
    #[error(
        "workload '{label}' has {files} files of {bytes} together: {max} files and {most} at most",
        max = FILES_MAX.get(),
        most = Bytes(FILE_BYTES_MAX.get())
    )]
    Files { label: String, files: u64, bytes: Bytes },
    #[error("its set-up did not end within {0} of the model's time: make its files smaller or its disk faster")]
    SetUp(Nanos),
}

impl Bound {
    pub fn of(self, scenario: &Scenario) -> SimError {
        SimError::Machine { scenario: scenario.name.clone(), why: self }
    }
}

/// Checks the machine's sizes before it is built.
pub fn of_machine(machine: &MachineSpec, shape: &Shape, profile: &Profile) -> Result<(), Bound> {
    if let Some(cpus) = machine.cpus.filter(|cpus| *cpus == 0 || u64::from(*cpus) > CPUS_MAX.get()) {
        return Err(Bound::Cpus(cpus));
    }
    let nodes = &shape.node_bytes;
    if nodes.len() as u64 > NODES_MAX.get() || nodes.iter().any(|bytes| *bytes < NODE_BYTES_MIN.get()) {
        return Err(Bound::Nodes);
    }
    let total = nodes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    let most = if profile.buffer_cache.is_some() { OLD_MEMORY_BYTES_MAX } else { MEMORY_BYTES_MAX }.get();
    if total > most {
        return Err(Bound::Memory(Bytes(total), Bytes(most)));
    }
    Ok(())
}

/// Checks the memory that is free after boot.
pub fn of_memory(mm: &Mm) -> Result<(), Bound> {
    for node in 0..mm.nodes {
        let left = mm.sum(|zone| if zone.node == node { zone.free } else { 0 }) * PAGE_BYTES;
        // 32 bits: all memory is the first node's.
        let has_zones = mm.zones.iter().any(|zone| zone.node == node);
        if has_zones && left < LEFT_BYTES_MIN.get() {
            return Err(Bound::Left(node, Bytes(left)));
        }
    }
    Ok(())
}

/// Checks the memory that other processes take before the scenario begins.
pub fn of_processes(inputs: &ModelInputs, mm: &Mm) -> Result<(), Bound> {
    let asked = inputs.process_memory;
    let most = mm.sum(|zone| zone.free + zone.file) * PAGE_BYTES / 100 * TAKEN_PERCENT_MAX.get();
    if asked > most { Err(Bound::ProcessMemory(Bytes(asked), Bytes(most))) } else { Ok(()) }
}

/// Checks the size of the workloads' files.
pub fn of_files(scenario: &Scenario, seed: u64) -> Result<(), SimError> {
    for spec in &scenario.workloads {
        let footprint = (spec.entry.build)(&spec.params, seed)?.footprint();
        if footprint.files > FILES_MAX.get() || footprint.disk_bytes > FILE_BYTES_MAX.get() {
            let (files, bytes) = (footprint.files, Bytes(footprint.disk_bytes));
            return Err(Bound::Files { label: spec.label.clone(), files, bytes }.of(scenario));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::run;
    use flatwater_workload::scenario::Scenario;

    /// The error of a run with this machine, setup and workload; empty if it ran.
    fn error_of(kernel: &str, machine: &str, setup: &str, workload: &str) -> String {
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nduration = '1ms'\nkernel = '{kernel}'\n[machine]\n{machine}\n[setup]\n{setup}\n\
             [[workload]]\n{workload}\n"
        );
        let scenario = Scenario::parse("x", &text).expect("parses");
        run(&scenario).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let journal = "use = 'journal'";
        for (kernel, machine, setup, workload, named) in [
            ("linux-6.1", "cpus = 0", "", journal, "machine.cpus"),
            ("linux-6.1", "cpus = 4294967295", "", journal, "machine.cpus"),
            ("linux-6.1", "nodes = ['31MiB']", "", journal, "machine.nodes"),
            ("linux-6.1", "nodes = ['1152921504606846976', '1GiB']", "", journal, "machine.nodes"),
            ("linux-2.2.5", "nodes = ['64GiB']", "", journal, "machine.nodes"),
            ("linux-6.1", "resident = ['64GiB']", "", journal, "machine.resident"),
            ("linux-2.6.32", "nodes = ['1GiB', '1GiB']\nreserved = ['0', '1020MiB']", "", journal, "node 1"),
            ("linux-2.6.32", "nodes = ['1GiB']", "'model.process_memory' = '1GiB'", journal, "model.process_memory"),
            ("linux-2.6.32", "", "", "use = 'maildir'\nmailboxes = 16777216\nmessages = 1048576", "workload 'maildir'"),
            ("linux-2.6.32", "", "", "use = 'graphdb'\nfiles = 16777216\nfile_size = '1024GiB'", "workload 'graphdb'"),
        ] {
            let error = error_of(kernel, machine, setup, workload);
            assert!(error.contains(named), "{machine} {setup} {workload}: '{error}'");
        }
    }

    #[test]
    fn what_just_fits_runs() {
        let journal = "use = 'journal'";
        for (machine, setup) in [
            ("cpus = 4096\nnodes = ['32MiB']", ""),
            ("nodes = ['1GiB']\nresident = ['980MiB']", ""),
            ("nodes = ['256MiB']", "'model.process_memory' = '200MiB'"),
        ] {
            assert_eq!(error_of("linux-6.1", machine, setup, journal), "", "{machine} {setup}");
        }
    }

    /// Commands of sdet that share one byte of intermediates: most of them write nothing.
    #[test]
    fn an_append_of_nothing_to_an_empty_file_runs() {
        let workload = "use = 'sdet'\nscripts = 3\nruns = 1\nintermediates = 1\nunits = 1\nprocess = 'script'";
        let text = format!(
            "name = 'x'\nsentence = 'X.'\nduration = '2s'\nkernel = 'linux-6.1'\n[machine]\nnodes = ['1GiB']\n[[workload]]\n{workload}\n"
        );
        let (_, truth) = run(&Scenario::parse("x", &text).expect("parses")).expect("runs");
        assert!(truth.operations > 50, "{}", truth.operations);
    }

    /// More mapped files than memory has inodes for: files that do not fit stay on the disk.
    #[test]
    fn files_that_are_mapped_from_the_start_do_not_take_more_memory_than_there_is() {
        let workload = "use = 'graphdb'\nfiles = 60000\nlive = 60000\nfile_size = '4KiB'\nload = 'allocate'";
        assert_eq!(error_of("linux-2.6.32", "nodes = ['32MiB']", "", workload), "");
    }
}
