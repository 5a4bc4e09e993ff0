//! The developer commands, each as a list of calls.

use super::{EDITED, INTERMEDIATE, MADE_DIRS, SCRATCH, SCRATCH_DIR, SOURCE_DIR, Tree};
use crate::dice::Dice;
use crate::{FileId, Op};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Edit,
    Compile,
    Copy,
    Find,
    Grep,
    List,
    Mkdir,
    Remove,
    Format,
    Echo,
}

impl Kind {
    /// Number of commands of each kind in one script.
    pub(super) const MULTISET: [(Kind, usize); 10] = [
        (Kind::Edit, 6),
        (Kind::Compile, 5),
        (Kind::Copy, 5),
        (Kind::Find, 2),
        (Kind::Grep, 3),
        (Kind::List, 6),
        (Kind::Mkdir, 2),
        (Kind::Remove, 5),
        (Kind::Format, 2),
        (Kind::Echo, 12),
    ];

    /// Short enough for a thread's name together with the script's number.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Edit => "ed",
            Kind::Compile => "cc",
            Kind::Copy => "cp",
            Kind::Find => "find",
            Kind::Grep => "grep",
            Kind::List => "ls",
            Kind::Mkdir => "mkdir",
            Kind::Remove => "rm",
            Kind::Format => "nroff",
            Kind::Echo => "echo",
        }
    }

    /// Percentage of all program files and libraries that this command needs. The compiler's passes, assembler and
    /// linker need the most, followed by nroff with its macros and fonts.
    pub(super) fn program_percent(self) -> u64 {
        match self {
            Kind::Compile => 60,
            Kind::Format => 16,
            _ => 3,
        }
    }

    /// Scratch files that this command creates.
    pub(super) fn makes(self) -> u64 {
        u64::from(matches!(self, Kind::Compile | Kind::Copy))
    }
}

/// One command of a script, with the scratch files that earlier commands left: numbers from `oldest` up to but
/// excluding `next`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub kind: Kind,
    pub run: u64,
    pub number: u64,
    pub oldest: u64,
    pub next: u64,
    /// Directories created by this script in all runs so far; `made_before` counts those before this run.
    pub made_dirs: u64,
    pub made_before: u64,
    /// The last command of a script removes the remaining files and directories.
    pub last: bool,
}

fn read_whole(ops: &mut Vec<Op>, file: FileId, bytes: u64) {
    ops.extend([Op::Read { file, offset_bytes: 0, bytes }, Op::Close { file }]);
}

fn make(ops: &mut Vec<Op>, file: FileId, bytes: u64) {
    ops.extend([Op::Create { file }, Op::Append { file, bytes }, Op::Close { file }]);
}

/// A compiler's passes: each one after the first reads the previous pass's output. The driver removes all output at
/// the end.
fn passes(ops: &mut Vec<Op>, tree: Tree, script: u64) {
    let files = if tree.intermediate_bytes == 0 { 0..0 } else { INTERMEDIATE..INTERMEDIATE + 2 };
    let files = files.map(|number| tree.file(script, number));
    for file in files.clone() {
        make(ops, file, tree.intermediate_bytes / 2);
        read_whole(ops, file, tree.intermediate_bytes / 2);
    }
    ops.push(Op::Compute { ns: tree.compute_ns });
    ops.extend(files.map(|file| Op::Unlink { file }));
}

/// The calls of one command, in order.
pub(super) fn ops(tree: Tree, script: u64, planned: Planned) -> Vec<Op> {
    let actor = script << 32 | planned.run << 16 | planned.number;
    let mut dice = Dice::new(tree.seed, actor, "sdet commands");
    let source = dice.below(tree.sources);
    let bytes = tree.size_bytes(script, source);
    let file = tree.file(script, source);
    let scratch = |number| tree.file(script, SCRATCH + number);
    let compute = |share: u64| Op::Compute { ns: tree.compute_ns * share / 100 };
    let mut ops = Vec::new();
    if tree.program_bytes > 0 {
        let (program, bytes) = tree.program(planned.kind);
        read_whole(&mut ops, program, bytes);
    }
    match planned.kind {
        Kind::Edit => {
            let edited = tree.file(script, EDITED + source);
            read_whole(&mut ops, file, bytes);
            ops.push(compute(5));
            make(&mut ops, edited, bytes);
            ops.push(Op::Rename { from: edited, to: file });
        }
        Kind::Compile => {
            for _ in 0..tree.units {
                for _ in 0..3 {
                    let header = dice.below(tree.sources);
                    read_whole(&mut ops, tree.file(script, header), tree.size_bytes(script, header));
                }
                passes(&mut ops, tree, script);
            }
            make(&mut ops, scratch(planned.next), bytes);
        }
        Kind::Copy => {
            read_whole(&mut ops, file, bytes);
            make(&mut ops, scratch(planned.next), bytes);
        }
        Kind::Find => {
            ops.extend((0..MADE_DIRS).map(|dir| Op::List { dir: tree.dir(script, dir) }));
            ops.extend((0..tree.sources).map(|source| Op::Stat { file: tree.file(script, source) }));
        }
        Kind::Grep => {
            for place in 0..tree.grepped.min(tree.sources) {
                let source = if tree.grepped < tree.sources { dice.below(tree.sources) } else { place };
                read_whole(&mut ops, tree.file(script, source), tree.size_bytes(script, source));
            }
            ops.push(compute(10));
        }
        Kind::List => ops.push(Op::List { dir: tree.dir(script, [SOURCE_DIR, SCRATCH_DIR][dice.below(2) as usize]) }),
        Kind::Mkdir => ops.push(Op::Mkdir { dir: tree.dir(script, MADE_DIRS + planned.made_dirs) }),
        // If there is nothing to remove, rm only does a stat().
        Kind::Remove if planned.oldest == planned.next => ops.push(Op::Stat { file }),
        Kind::Remove => ops.push(Op::Unlink { file: scratch(planned.oldest) }),
        Kind::Format => {
            read_whole(&mut ops, file, bytes);
            ops.push(compute(50));
        }
        Kind::Echo => ops.push(compute(2)),
    }
    if planned.last {
        let removed = u64::from(planned.kind == Kind::Remove && planned.oldest < planned.next);
        let left = planned.oldest + removed..planned.next + planned.kind.makes();
        ops.extend(left.map(|number| Op::Unlink { file: scratch(number) }));
        let directories = planned.made_before..planned.made_dirs + u64::from(planned.kind == Kind::Mkdir);
        ops.extend(directories.map(|number| Op::Rmdir { dir: tree.dir(script, MADE_DIRS + number) }));
    }
    ops
}
