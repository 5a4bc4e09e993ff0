//! Software developers at work: N concurrent scripts, each a random permutation of the same multiset of commands in its
//! own directory tree. Runs follow each other, so the caches that one run leaves behind affect the next.
//!
//! Modelled on the published description of SDET: the kinds of commands are from there, their sizes are ours. Files
//! are larger than twelve 1 KiB blocks, so they have indirect blocks, whose buffers truncation forgets.

use super::dice::Dice;
use super::outcome::sdet::SdetObserver;
use super::params::SCALE;
use super::{Actor, ActorStart, DirId, FileId, Footprint, Mark, Observe, Op, ParamError, ParamKind, ParamSpec, Params};
use super::{Role, Stream, Workload, WorkloadEntry};

mod command;
mod script;

use command::Kind;
use script::{Command, Script};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "sdet",
    sentence: "Concurrent scripts of developer commands in consecutive runs: scripts per hour and their trend.",
    params: PARAMS,
    build,
};

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "scripts",
        kind: ParamKind::Count { min: 1, max: 4096 },
        default: "128",
        sentence: "Scripts that run at the same time (scaled).",
    },
    ParamSpec {
        name: "runs",
        kind: ParamKind::Count { min: 1, max: 1000 },
        default: "6",
        sentence: "Consecutive runs of all scripts.",
    },
    ParamSpec {
        name: "sources",
        kind: ParamKind::Count { min: 1, max: 10_000 },
        default: "16",
        sentence: "Source files in each script's tree.",
    },
    ParamSpec {
        name: "file_size",
        kind: ParamKind::Size { min: 256, max: 1 << 30 },
        default: "24KiB",
        sentence: "Mean size of a source file; sizes are uniform from half to one and a half times the mean.",
    },
    ParamSpec {
        name: "compute",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 60_000_000_000 },
        default: "10ms",
        sentence: "CPU time of a compilation; other commands take a share of this time.",
    },
    ParamSpec {
        name: "intermediates",
        kind: ParamKind::Size { min: 0, max: 1 << 30 },
        default: "0B",
        sentence: "Bytes that a compilation writes to files that it removes at its end (.i and .s, half each).",
    },
    ParamSpec {
        name: "units",
        kind: ParamKind::Count { min: 1, max: 10_000 },
        default: "1",
        sentence: "Source files that one compile command compiles consecutively, like make.",
    },
    ParamSpec {
        name: "programs",
        kind: ParamKind::Size { min: 0, max: 1 << 34 },
        default: "0B",
        sentence: "Size of all program files and libraries; each command reads its own, which all scripts share.",
    },
    ParamSpec {
        name: "grepped",
        kind: ParamKind::Count { min: 1, max: 10_000 },
        default: "10000",
        sentence: "Source files that a grep reads, chosen at random; all of them in order if there are not more.",
    },
    ParamSpec {
        name: "settle",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 3_600_000_000_000 },
        default: "0s",
        sentence: "Pause between creating the trees and the first run.",
    },
    ParamSpec {
        name: "process",
        kind: ParamKind::Choice(&["command", "script"]),
        default: "command",
        sentence: "Whether each command is a separate process, as in a shell, or only each script.",
    },
    SCALE,
];

#[derive(Clone, Copy, Debug)]
struct Sdet {
    seed: u64,
    scripts: u64,
    runs: u64,
    process_per_command: bool,
    settle_ns: u64,
    tree: Tree,
}

/// Layout of each script's directory tree, and the ids of the tree's files and directories.
#[derive(Clone, Copy, Debug)]
struct Tree {
    seed: u64,
    sources: u64,
    file_bytes: u64,
    compute_ns: u64,
    intermediate_bytes: u64,
    program_bytes: u64,
    grepped: u64,
    units: u64,
}

/// Maximum number of scripts over all runs if commands are processes, because all are planned before the first one
/// runs.
const SCRIPTS_MAX: u64 = 1 << 16;
/// File numbers of one script: sources from 0, their edited copies from `EDITED`, scratch files from `SCRATCH`,
/// temporary files of a compilation from `INTERMEDIATE`.
const FILES_A_SCRIPT: u64 = 1 << 32;
const EDITED: u64 = 1 << 24;
const SCRATCH: u64 = 1 << 25;
const INTERMEDIATE: u64 = 1 << 26;
/// Used instead of a script's number for the programs that all scripts share.
const SHARED: u64 = 1 << 16;
/// Directory numbers of one script: 0 is its root, then `src`, `obj`, and the directories that its mkdir commands
/// create.
const DIRS_A_SCRIPT: u64 = 1 << 32;
const SOURCE_DIR: u64 = 1;
const SCRATCH_DIR: u64 = 2;
const MADE_DIRS: u64 = 3;

impl Tree {
    fn file(self, script: u64, number: u64) -> FileId {
        FileId(script * FILES_A_SCRIPT + number)
    }

    fn dir(self, script: u64, number: u64) -> DirId {
        DirId(script * DIRS_A_SCRIPT + number)
    }

    /// Size of a source file, unchanged by edits.
    fn size_bytes(self, script: u64, source: u64) -> u64 {
        let half = (self.file_bytes / 2).max(1);
        Dice::new(self.seed, self.file(script, source).0, "sdet sizes").between(half, 3 * half)
    }

    fn program(self, kind: Kind) -> (FileId, u64) {
        (self.file(SHARED, kind as u64), self.program_bytes * kind.program_percent() / 100)
    }
}

fn build(params: &Params, seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    let tree = Tree {
        seed,
        sources: params.count("sources"),
        file_bytes: params.size_bytes("file_size"),
        compute_ns: params.duration_ns("compute"),
        intermediate_bytes: params.size_bytes("intermediates"),
        program_bytes: params.size_bytes("programs"),
        grepped: params.count("grepped"),
        units: params.count("units"),
    };
    let (scripts, runs) = (params.scaled_count("scripts"), params.count("runs"));
    let process_per_command = params.choice("process") == "command";
    if process_per_command && scripts * runs > SCRIPTS_MAX {
        return Err(ParamError::Impossible {
            workload: "sdet".to_owned(),
            why: format!(
                "scripts and runs come to {} scripts, each with {} processes: the maximum is {SCRIPTS_MAX} scripts",
                scripts * runs,
                script::COMMANDS
            ),
        });
    }
    Ok(Box::new(Sdet { seed, scripts, runs, process_per_command, settle_ns: params.duration_ns("settle"), tree }))
}

impl Sdet {
    /// Order of the actors: the coordinator, all scripts of run 0, of run 1 ..., then all their commands.
    fn script_actor(&self, run: u64, script: u64) -> usize {
        (1 + run * self.scripts + script) as usize
    }

    fn command_actor(&self, run: u64, script: u64, command: usize) -> usize {
        let before = run * self.scripts + script;
        (1 + self.runs * self.scripts) as usize + before as usize * script::COMMANDS + command
    }
}

impl Workload for Sdet {
    fn footprint(&self) -> Footprint {
        let files = self.scripts * (self.tree.sources + script::SCRATCH_MAX);
        let a_process: u64 = if self.process_per_command { 2 } else { 1 };
        Footprint {
            // A file takes whole blocks of 4 KiB: on average 2 KiB more than its size.
            disk_bytes: files
                .saturating_mul(self.tree.file_bytes + 2048 + 256)
                .saturating_add(self.scripts.saturating_mul(self.tree.intermediate_bytes))
                .saturating_add(self.tree.program_bytes),
            growth_bytes_per_s: 0,
            files,
            memory_bytes: self.scripts * a_process * (1 << 20),
            threads: 1,
            processes: u32::try_from(self.scripts * a_process).unwrap_or(u32::MAX),
        }
    }

    fn actors(&self) -> Vec<Actor> {
        let coordinator = Coordinator { sdet: *self, step: Step::Begin, run: 0, script: 0, todo: Vec::new() };
        let mut actors = vec![Actor {
            name: "sdet".to_owned(),
            role: Role::Foreground,
            start: ActorStart::Immediately,
            stream: Box::new(coordinator),
        }];
        let mut commands = Vec::new();
        for run in 0..self.runs {
            for script in 0..self.scripts {
                let plan = script::plan(self.seed, run, script);
                let process =
                    |name: String, stream| Actor { name, role: Role::Foreground, start: ActorStart::OnSpawn, stream };
                let stream: Box<dyn Stream> = if self.process_per_command {
                    for (number, planned) in plan.iter().enumerate() {
                        let name = format!("{}-{script}", planned.kind.name());
                        debug_assert_eq!(
                            self.command_actor(run, script, number),
                            self.command_actor(0, 0, commands.len())
                        );
                        commands.push(process(name, Box::new(Command::new(self.tree, script, *planned))));
                    }
                    Box::new(Script::spawning(self.command_actor(run, script, 0)))
                } else {
                    Box::new(Script::inline(self.tree, script, plan))
                };
                debug_assert_eq!(self.script_actor(run, script), actors.len());
                actors.push(process(format!("script-{script}"), stream));
            }
        }
        actors.extend(commands);
        actors
    }

    fn path(&self, file: FileId) -> String {
        let number = file.0 % FILES_A_SCRIPT;
        let dir = self.directory_path(self.directory(file));
        match number {
            EDITED..SCRATCH => format!("{dir}/{}.new", number - EDITED),
            SCRATCH..INTERMEDIATE => format!("{dir}/{}.o", number - SCRATCH),
            INTERMEDIATE.. => format!("{dir}/cc{}.tmp", number - INTERMEDIATE),
            _ if file.0 / FILES_A_SCRIPT == SHARED => format!("{dir}/program-{number}"),
            _ => format!("{dir}/{number}.c"),
        }
    }

    fn directory(&self, file: FileId) -> DirId {
        let (script, number) = (file.0 / FILES_A_SCRIPT, file.0 % FILES_A_SCRIPT);
        self.tree.dir(script, if number < SCRATCH { SOURCE_DIR } else { SCRATCH_DIR })
    }

    fn directory_path(&self, dir: DirId) -> String {
        let (script, number) = (dir.0 / DIRS_A_SCRIPT, dir.0 % DIRS_A_SCRIPT);
        match number {
            0 if script == SHARED => "usr".to_owned(),
            _ if script == SHARED => "usr/bin".to_owned(),
            0 => format!("user-{script}"),
            SOURCE_DIR => format!("user-{script}/src"),
            SCRATCH_DIR => format!("user-{script}/obj"),
            made => format!("user-{script}/dir-{}", made - MADE_DIRS),
        }
    }

    fn observer(&self) -> Option<Box<dyn Observe>> {
        Some(Box::new(SdetObserver::new(u32::try_from(self.scripts).unwrap_or(u32::MAX))))
    }
}

/// Creates the trees unmeasured, then starts all scripts of a run at once and waits for the last one.
#[derive(Debug)]
enum Step {
    Begin,
    Trees,
    Settled,
    RunBegin,
    Spawn,
    Wait,
    RunEnd,
    End,
}

#[derive(Debug)]
struct Coordinator {
    sdet: Sdet,
    step: Step,
    run: u64,
    script: u64,
    /// Remaining operations of the current tree, in reverse order.
    todo: Vec<Op>,
}

impl Coordinator {
    fn programs(&mut self) {
        let tree = self.sdet.tree;
        self.todo.extend([0, SOURCE_DIR].map(|number| Op::Mkdir { dir: tree.dir(SHARED, number) }));
        for (kind, _) in Kind::MULTISET {
            let (file, bytes) = tree.program(kind);
            self.todo.extend([Op::Create { file }, Op::Append { file, bytes }, Op::Close { file }]);
        }
        self.todo.reverse();
    }

    fn one_tree(&mut self) {
        let (tree, script) = (self.sdet.tree, self.script);
        self.todo.extend((0..MADE_DIRS).map(|number| Op::Mkdir { dir: tree.dir(script, number) }));
        for source in 0..tree.sources {
            let file = tree.file(script, source);
            let bytes = tree.size_bytes(script, source);
            self.todo.extend([Op::Create { file }, Op::Append { file, bytes }, Op::Close { file }]);
        }
        self.todo.reverse();
        self.script += 1;
    }
}

impl Stream for Coordinator {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        if matches!(self.step, Step::Trees) && self.todo.is_empty() && self.script < self.sdet.scripts {
            self.one_tree();
        }
        if let Some(op) = self.todo.pop() {
            return Some(op);
        }
        let (step, op) = match self.step {
            Step::Begin => {
                if self.sdet.tree.program_bytes > 0 {
                    self.programs();
                }
                (Step::Trees, Op::Measure { on: false })
            }
            Step::Trees if self.sdet.settle_ns > 0 => (Step::Settled, Op::Sleep { ns: self.sdet.settle_ns }),
            Step::Trees | Step::Settled => (Step::RunBegin, Op::Measure { on: true }),
            Step::RunBegin => {
                self.script = 0;
                (Step::Spawn, Op::Mark { mark: Mark::RunBegin, value: self.run })
            }
            Step::Spawn => {
                let actor = self.sdet.script_actor(self.run, self.script);
                self.script += 1;
                (if self.script == self.sdet.scripts { Step::Wait } else { Step::Spawn }, Op::Spawn { actor })
            }
            Step::Wait => (Step::RunEnd, Op::WaitSpawned),
            Step::RunEnd => {
                let value = self.run;
                self.run += 1;
                let next = if self.run == self.sdet.runs { Step::End } else { Step::RunBegin };
                (next, Op::Mark { mark: Mark::RunEnd, value })
            }
            Step::End => return None,
        };
        self.step = step;
        Some(op)
    }
}

#[cfg(test)]
mod tests;
