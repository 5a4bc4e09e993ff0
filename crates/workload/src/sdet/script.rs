//! A script: one permutation of the commands, run either as consecutive processes or inline.

use std::collections::VecDeque;

use super::Tree;
use super::command::{Kind, Planned, ops};
use crate::dice::Dice;
use crate::{Op, Stream};

/// Number of commands in one script.
pub(super) const COMMANDS: usize = {
    let mut sum = 0;
    let mut kind = 0;
    while kind < Kind::MULTISET.len() {
        sum += Kind::MULTISET[kind].1;
        kind += 1;
    }
    sum
};

/// Maximum number of scratch files of a script at one time: one for each command that creates one.
pub(super) const SCRATCH_MAX: u64 = 10;

/// The commands of one script in the order of this run, each with what earlier commands leave behind.
pub(super) fn plan(seed: u64, run: u64, script: u64) -> Vec<Planned> {
    let mut kinds: Vec<Kind> =
        Kind::MULTISET.iter().flat_map(|&(kind, count)| std::iter::repeat_n(kind, count)).collect();
    Dice::new(seed, script << 32 | run, "sdet order").shuffle(&mut kinds);
    let dirs_a_run = kinds.iter().filter(|kind| **kind == Kind::Mkdir).count() as u64;
    let made_before = run * dirs_a_run;
    let (mut oldest, mut next, mut made_dirs) = (0, 0, made_before);
    let last = kinds.len() - 1;
    let planned = kinds.into_iter().enumerate().map(|(number, kind)| {
        let (number, last) = (number as u64, number == last);
        let planned = Planned { kind, run, number, oldest, next, made_dirs, made_before, last };
        next += kind.makes();
        oldest += u64::from(kind == Kind::Remove && oldest < next);
        made_dirs += u64::from(kind == Kind::Mkdir);
        planned
    });
    planned.collect()
}

/// The stream of one command's process. Its calls are generated when it begins.
#[derive(Debug)]
pub(super) struct Command {
    tree: Tree,
    script: u64,
    planned: Option<Planned>,
    todo: VecDeque<Op>,
}

impl Command {
    pub(super) fn new(tree: Tree, script: u64, planned: Planned) -> Command {
        Command { tree, script, planned: Some(planned), todo: VecDeque::new() }
    }
}

impl Stream for Command {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        if let Some(planned) = self.planned.take() {
            self.todo = ops(self.tree, self.script, planned).into();
        }
        self.todo.pop_front()
    }
}

/// The stream of a script's process.
#[derive(Debug)]
pub(super) enum Script {
    Spawning { next: usize, left: usize, wait: bool },
    Inline { commands: VecDeque<Command> },
}

impl Script {
    /// Starts `COMMANDS` actors one after the other, beginning with this index.
    pub(super) fn spawning(first: usize) -> Script {
        Script::Spawning { next: first, left: COMMANDS, wait: false }
    }

    pub(super) fn inline(tree: Tree, script: u64, plan: Vec<Planned>) -> Script {
        Script::Inline { commands: plan.into_iter().map(|planned| Command::new(tree, script, planned)).collect() }
    }
}

impl Stream for Script {
    fn next(&mut self, now_ns: u64) -> Option<Op> {
        match self {
            Script::Spawning { next, left, wait } => {
                if std::mem::take(wait) {
                    return Some(Op::WaitSpawned);
                }
                *left = left.checked_sub(1)?;
                *wait = true;
                let actor = *next;
                *next += 1;
                Some(Op::Spawn { actor })
            }
            Script::Inline { commands } => loop {
                if let Some(op) = commands.front_mut()?.next(now_ns) {
                    return Some(op);
                }
                commands.pop_front();
            },
        }
    }
}
