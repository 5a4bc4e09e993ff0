//! Builds a tree of calls from entries and returns, and the segments of a slow call from the tree.

use crate::builder::Builder;
use flatwater_recording::symbol::meaning;
use flatwater_recording::{Cause, Segment};

/// Deeper calls, and functions beyond `NODES_MAX` in one call, count as their caller's own time.
const DEPTH_MAX: usize = 256;
const NODES_MAX: usize = 100_000;
/// What such functions are called in a gap.
pub const DEEP_CALLS: &str = "function calls inside one call, which count as time of their callers";

/// A function call that has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// Time of entry; `None` in traces with durations only.
    pub start_ns: Option<u64>,
    pub ns: u64,
    pub children: Vec<Node>,
}

#[derive(Debug)]
struct Open {
    name: String,
    start_ns: Option<u64>,
    children: Vec<Node>,
}

/// The open function calls of one thread.
#[derive(Debug, Default)]
pub struct Stack {
    open: Vec<Open>,
    /// Number of open calls beyond the limits; their returns are ignored as well.
    ignored: usize,
    nodes: usize,
    /// Number of calls beyond the limits since the last `take_dropped`.
    dropped: u64,
    /// An entry or a return is missing.
    pub damaged: bool,
    latest_ns: u64,
}

impl Stack {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Number of calls that were not kept.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// The function at the root.
    #[must_use]
    pub fn outermost(&self) -> Option<&str> {
        self.open.first().map(|open| open.name.as_str())
    }

    pub fn enter(&mut self, name: &str, at_ns: Option<u64>) {
        if self.open.is_empty() {
            self.nodes = 0;
            self.damaged = false;
        }
        self.latest_ns = self.latest_ns.max(at_ns.unwrap_or(0));
        if self.open.len() >= DEPTH_MAX || self.nodes >= NODES_MAX {
            (self.ignored, self.dropped) = (self.ignored + 1, self.dropped + 1);
            return;
        }
        self.nodes += 1;
        self.open.push(Open { name: name.to_owned(), start_ns: at_ns, children: Vec::new() });
    }

    /// Closes the innermost call, or the innermost call of this name. Returns the root if that was closed.
    pub fn leave(&mut self, name: Option<&str>, at_ns: Option<u64>, took_ns: Option<u64>) -> Option<Node> {
        self.latest_ns = self.latest_ns.max(at_ns.unwrap_or(0));
        if self.ignored > 0 {
            self.ignored -= 1;
            return None;
        }
        let place = match name {
            Some(name) => self.open.iter().rposition(|open| open.name == name),
            None => self.open.len().checked_sub(1),
        };
        // A return without an entry: tracing began inside the function.
        let place = place?;
        while self.open.len() > place + 1 {
            self.damaged = true;
            self.close(at_ns, None);
        }
        self.close(at_ns, took_ns)
    }

    /// Ends the trace: closes all open calls at the last time.
    pub fn cut(&mut self) -> Option<Node> {
        self.damaged = true;
        self.ignored = 0;
        let at = self.latest_ns;
        while self.open.len() > 1 {
            self.close(Some(at), None);
        }
        self.close(Some(at), None)
    }

    fn close(&mut self, at_ns: Option<u64>, took_ns: Option<u64>) -> Option<Node> {
        let open = self.open.pop()?;
        let inner: u64 = open.children.iter().fold(0, |sum, child| sum.saturating_add(child.ns));
        let elapsed = at_ns.zip(open.start_ns).map(|(end, start)| end.saturating_sub(start));
        // The printed duration is the tracer's own; the difference of times includes its overhead.
        let ns = took_ns.or(elapsed).unwrap_or(inner).min(1 << 62);
        let start_ns = match (at_ns, took_ns) {
            (Some(end), Some(took)) => Some(end.saturating_sub(took)),
            _ => open.start_ns,
        };
        let node = Node { name: open.name, start_ns, ns, children: open.children };
        match self.open.last_mut() {
            Some(parent) => {
                parent.children.push(node);
                None
            }
            None => Some(node),
        }
    }
}

/// The segments of a call: each interval belongs to the innermost open function, with all open functions as its stack.
pub fn segments(root: &Node, b: &mut Builder) -> Vec<Segment> {
    let mut tiles = Tiles { b, frames: Vec::new(), segments: Vec::new() };
    tiles.add(root, 0, root.ns);
    tiles.segments
}

struct Tiles<'a> {
    b: &'a mut Builder,
    /// Outermost first.
    frames: Vec<String>,
    segments: Vec<Segment>,
}

impl Tiles<'_> {
    /// Covers `from..to` (ns from the root's start) with the node and its children.
    fn add(&mut self, node: &Node, from: u64, to: u64) {
        self.frames.push(node.name.clone());
        let mut at = from;
        // Without times the order is unknown: the function's own time is placed before its children.
        let timed = node.start_ns.filter(|_| node.children.iter().all(|child| child.start_ns.is_some()));
        if timed.is_none() {
            let inner = node.children.iter().fold(0_u64, |sum, child| sum.saturating_add(child.ns));
            let own = (to - from).saturating_sub(inner);
            self.own(at, at + own);
            at += own;
        }
        for child in &node.children {
            let offset = timed.zip(child.start_ns).map(|(start, child)| child.saturating_sub(start));
            let begin = offset.map_or(at, |offset| from.saturating_add(offset)).clamp(at, to);
            let end = begin.saturating_add(child.ns).min(to);
            self.own(at, begin);
            self.add(child, begin, end);
            at = end;
        }
        self.own(at, to);
        self.frames.pop();
    }

    fn own(&mut self, from: u64, to: u64) {
        let Some(ns) = to.checked_sub(from).filter(|ns| *ns > 0) else { return };
        let frames: Vec<String> = self.frames.iter().rev().cloned().collect();
        let cause = meaning(&frames).map_or(Cause::Unexplained, |meaning| meaning.cause);
        let stack = Some(self.b.stack(frames));
        self.segments.push(Segment::bracketed(from, ns, cause).with_stack(stack));
    }
}

#[cfg(test)]
mod tests {
    use super::{Stack, segments};
    use crate::builder::Builder;

    #[test]
    fn segments_tile_the_call_and_keep_the_order() {
        let mut stack = Stack::default();
        stack.enter("vfs_write", Some(0));
        stack.enter("inner", Some(100));
        assert!(stack.leave(Some("inner"), Some(400), None).is_none());
        let root = stack.leave(Some("vfs_write"), Some(1000), None).expect("the root");
        let segments = segments(&root, &mut Builder::default());
        let shape: Vec<(u64, u64)> = segments.iter().map(|segment| (segment.offset_ns, segment.ns)).collect();
        assert_eq!(shape, [(0, 100), (100, 300), (400, 600)]);
    }

    #[test]
    fn segments_tile_the_call_without_times() {
        let mut stack = Stack::default();
        stack.enter("vfs_write", None);
        for took in [30, 40] {
            stack.enter("inner", None);
            stack.leave(None, None, Some(took));
        }
        let root = stack.leave(None, None, Some(100)).expect("the root");
        let segments = segments(&root, &mut Builder::default());
        let shape: Vec<(u64, u64)> = segments.iter().map(|segment| (segment.offset_ns, segment.ns)).collect();
        assert_eq!(shape, [(0, 30), (30, 30), (60, 40)]);
    }

    #[test]
    fn a_lost_return_and_a_cut_trace_still_give_a_call() {
        let mut stack = Stack::default();
        stack.enter("a", Some(0));
        stack.enter("b", Some(10));
        let root = stack.leave(Some("a"), Some(50), None).expect("the root");
        assert!(stack.damaged && root.ns == 50);
        stack.enter("a", Some(100));
        stack.enter("b", Some(120));
        assert_eq!(stack.cut().map(|root| root.ns), Some(20));
        for _ in 0..1000 {
            stack.enter("deep", Some(0));
        }
        assert!(stack.cut().is_some() && stack.is_empty());
    }
}
