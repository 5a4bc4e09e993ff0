//! Parses a frame of a kernel stack in every format of kernels since 2.2 and of tools that print their stacks.
//!
//! | format | printed by |
//! |---|---|
//! | `[<ffffffff8110>] io_schedule+0x73/0xc0 [mod]`, `? f+0x1/0x2` | x86 2.6 to 4.9, and most others |
//! | `[<ffffffff8110>] :ext3:ext3_sync_file+0x10/0x20` | x86-64 2.6.18 to 2.6.26 |
//! | `<ffffffff8014a2f1>{:ext3:do_get_write_access+12}` | x86-64 before 2.6.18, offsets in decimal |
//! | `[<c0107a42>] __down [kernel] 0x72 (0xc1a2f)` | 2.4 of a distribution |
//! | `[<0>] f+0x1/0x2` | /proc/PID/stack from 4.15 on |
//! | ` f+0x1/0x2 [mod]` | dmesg from 4.10 on |
//! | `[<c0123456>] (f+0x1/0x2) from [<c0654321>] (g+0x3/0x4)`, ` f from g+0x3/0x4` | 32-bit ARM |
//! | `[c0000000f123] [c00000000012] .f+0x1/0x2 (unreliable)` | PowerPC |
//! | `([<0000000012345678>] f+0x1/0x2)` | s390 |
//! | `RIP: 0010:f+0x1/0x2`, `pc : f+0x1/0x2`, `EIP is at f+0x1/0x2`, `NIP [c0] f+0x1/0x2` | registers of a CPU |
//! | ` #3 [ffff883ad675b3b8] f at ffffffff8104fa60 [mod]` | crash |
//! | `#0 [<c0b420ec>] (f) from [<c0b423c8>]` | crash, of 32-bit ARM |
//! | `[ffff9e334e3e7b58] f at ffffffff85ea7ed3`, `START: f at ffffffff85ea4cc6` | `bt -t` of crash |
//! | `08f9f9a0:  [<0805d8cb>] f+0x1/0x2` | User-mode Linux of 2.6 |
//! | `(f) from (g+0x3/0x4)` | 32-bit ARM, after a page or a mail program removed the addresses |
//! | `Call Trace: f+0x1/0x2 g+0x3/0x4 [mod] ? h+0x5/0x6` | a page that joined the lines of a report: `flattened` |
//! | `Call Trace: [f+12/34] [<c6abefa1>] [g+56/78]`, `Trace; c0106f3c <f+5c/c0>` | klogd and ksymoops of 2.4 |
//! | `#1  f+0x1/0x2`, `#1  f (kernel/sched/core.c:5381:2)` | drgn |
//! | `f (fs/ext4/inode.c:123 fs/ext4/inode.c:45) ext4` | scripts/decode_stacktrace.sh |
//! | only `f+12` or `f` | bpftrace and bcc: only in a run of such lines (`is_run`) |

use flatwater_recording::symbol::cause_of;

/// A function, and whether the unwinder trusts the frame. x86 marks addresses that it only found on the stack with `?`,
/// PowerPC with `(unreliable)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub name: &'a str,
    pub trusted: bool,
}

/// Text before the function in lines that show the registers of a CPU.
const REGISTERS: &[&str] =
    &["RIP: 0010:", "RIP: ", "EIP: 0060:", "EIP: ", "EIP is at ", "PC is at ", "LR is at ", "pc : ", "lr : "];

/// The frames of a line with several: of 2.4, as klogd decodes it
/// (`Call Trace: [schedule+969/1504] [<c6abefa1>] [kupdate+317/336]`; addresses of modules stay addresses), and of
/// x86-64 before 2.6.18
/// (`<ffffffff80269f87>{xfs_qm_dqunpin_wait+220} <ffffffff80140e74>{debug_mutex_free_waiter+141}`).
pub fn side_by_side(text: &str) -> impl Iterator<Item = &str> {
    let text = text.trim();
    let text = text.strip_prefix("Call Trace:").unwrap_or(text).trim_start();
    let whole = text.starts_with(['[', '<', '{'])
        && text.len() <= 400
        && text.split_whitespace().all(|word| beside(word).is_some());
    text.split_whitespace().filter(move |_| whole).filter_map(|word| beside(word).flatten())
}

/// The frames of a line with two, as x86 printed them in 2.6.16 and 2.6.17:
/// `<c01369e2> __alloc_pages+0x1f2/0x2d0  <c0149c92> kmem_getpages+0x32/0xa0 [mod]`.
pub fn in_pairs(text: &str) -> impl Iterator<Item = &str> {
    let text = text.trim();
    let whole = text.starts_with('<') && text.len() <= 400 && text.contains("+0x") && text.matches('<').count() > 1;
    text.split('<').skip(1).filter(move |_| whole).filter_map(|part| {
        let (at, rest) = part.split_once("> ")?;
        let (name, _) = rest.trim_start().split_once("+0x")?;
        identifier(name).filter(|_| address(at))
    })
}

/// The frames of a line with a whole stack, as web pages and bug trackers join the lines of a report. Requires three
/// functions: a line with two is a frame of ARM, and no kernel prints three in one frame.
pub fn flattened(text: &str) -> impl Iterator<Item = Frame<'_>> {
    let words = || text.split_whitespace();
    let whole = text.len() <= FLAT_MAX && words().filter(|word| is_symbol(word)).count() > 2;
    let before = std::iter::once("").chain(words());
    let frames = words().zip(before).filter(move |(word, _)| whole && is_symbol(word));
    frames.filter_map(|(word, before)| named(word, before != "?"))
}

/// Maximum length of such a line: about 128 frames.
const FLAT_MAX: usize = 8192;

/// The function in a word of such a line. `Some(None)` is an address without a name.
fn beside(word: &str) -> Option<Option<&str>> {
    let decimal = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if let Some((at, inner)) = word.strip_prefix('<').and_then(|rest| rest.split_once(">{")) {
        let inner = inner.strip_suffix('}').filter(|_| address(at))?;
        let inner = inner.strip_prefix(':').and_then(|rest| rest.split_once(':')).map_or(inner, |(_, name)| name);
        let (name, offset) = inner.split_once('+')?;
        return Some(Some(identifier(name).filter(|_| decimal(offset))?));
    }
    // A page that treats angle brackets as markup leaves `{f+123}`.
    if let Some(inner) = word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        let (name, offset) = inner.split_once('+')?;
        return Some(Some(identifier(name).filter(|_| decimal(offset))?));
    }
    let inner = word.strip_prefix('[')?.strip_suffix(']')?;
    if let Some(at) = inner.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
        return address(at).then_some(None);
    }
    let (name, place) = inner.split_once('+')?;
    let (offset, size) = place.split_once('/')?;
    Some(Some(identifier(name).filter(|_| decimal(offset) && decimal(size))?))
}

/// The function of a line in the commonest format, `io_schedule+0x46/0x70 [ext4]`. Nothing else has that format, so the
/// slower checks can be skipped: most lines of a long log of stacks have it.
#[must_use]
pub fn plain(text: &str) -> Option<&str> {
    with_offset(text.trim()).filter(|frame| frame.trusted && is_plain(text)).map(|frame| frame.name)
}

#[must_use]
pub fn is_plain(text: &str) -> bool {
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    let (symbol, module) = match text.trim().split_once(' ') {
        Some((symbol, module)) => (symbol, module),
        None => (text.trim(), "[]"),
    };
    let Some((name, place)) = symbol.split_once("+0x") else { return false };
    let Some((offset, size)) = place.split_once("/0x") else { return false };
    let of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.');
    hex(offset)
        && hex(size)
        && !name.is_empty()
        && name.bytes().all(of_name)
        && module.starts_with('[')
        && module.ends_with(']')
        && !module.contains(' ')
}

/// The frame on a line; `None` if the line is not a frame.
#[must_use]
pub fn frame(text: &str) -> Option<Frame<'_>> {
    let text = text.trim();
    if text.len() > 400 {
        return None;
    }
    if let Some(name) = side_by_side(text).next() {
        return Some(Frame { name, trusted: true });
    }
    // ksymoops: `Trace; c0106f3c <__down+5c/c0>`.
    if let Some((_, rest)) = text.strip_prefix("Trace; ").and_then(|rest| rest.split_once('<')) {
        return named(rest.split(['>', ' ']).next()?, true);
    }
    // The start of crash's `bt -t`: `START: __schedule at ffffffff85ea4cc6`.
    let text = text.strip_prefix("START: ").unwrap_or(text);
    let register = REGISTERS.iter().find_map(|register| text.strip_prefix(register));
    let text = register.unwrap_or(text);
    let text = ["NIP [", "LR ["]
        .iter()
        .find_map(|key| text.strip_prefix(key)?.split_once("] ").map(|at| at.1))
        .unwrap_or(text);
    numbered(text)
        .or_else(|| addressed(text))
        .or_else(|| without_addresses(text))
        .or_else(|| with_offset(text))
        .or_else(|| decoded(text))
        .or_else(|| at_address(text))
}

/// A frame as tracers print it, `ffffffffb4e2c1a1 io_schedule+0x11 ([kernel.kallsyms])`. The thread was traced there,
/// and did not necessarily sleep.
#[must_use]
pub fn traced(text: &str) -> Option<Frame<'_>> {
    let (at, rest) = text.trim().split_once(' ')?;
    let (symbol, image) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
    let kernel = at.len() == 16 && at.starts_with("ffff") && hex(at);
    let image = image.trim().is_empty()
        || image.contains("[kernel")
        || image.contains(".ko")
        || image.contains('[')
        || image.contains("vmlinux");
    (kernel && image && symbol.contains("+0x")).then(|| named(symbol, true))?
}

/// Parses `invalidate_inodes at ffffffff8f3b4784`, a frame of crash without its number and stack address.
fn at_address(text: &str) -> Option<Frame<'_>> {
    let mut words = text.split_whitespace();
    let (name, at, place) = (words.next()?, words.next()?, words.next()?);
    let kernel =
        at == "at" && place.len() == 16 && hex(place) && words.next().is_none_or(|module| module.starts_with('['));
    kernel.then_some(Frame { name: identifier(name)?, trusted: true })
}

/// Whether the line shows the instruction pointer of a CPU, which precedes the stack.
#[must_use]
pub fn is_register(text: &str) -> bool {
    let text = text.trim();
    REGISTERS.iter().any(|register| text.starts_with(register)) || text.starts_with("NIP [")
}

/// Whether the line shows an instruction pointer in the kernel.
#[must_use]
pub fn is_kernels(text: &str) -> bool {
    let text = text.trim();
    ["RIP: 0010:", "EIP: 0060:", "EIP is at ", "PC is at ", "pc : ", "NIP ["]
        .iter()
        .any(|start| text.starts_with(start))
}

fn hex(text: &str) -> bool {
    !text.is_empty() && text.len() <= 16 && text.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Whether the text is an address, with or without `0x`: at least 8 hexadecimal digits.
fn address(text: &str) -> bool {
    let text = text.strip_prefix("0x").unwrap_or(text);
    hex(text) && text.len() >= 8
}

/// The text if it can be the name of a kernel symbol. Compilers append dots (`f.isra.0`), PowerPC puts one before.
#[must_use]
pub fn identifier(text: &str) -> Option<&str> {
    let text = text.strip_prefix('.').unwrap_or(text);
    let first = text.bytes().next()?;
    let plain = (first.is_ascii_alphabetic() || first == b'_')
        && text.len() <= 96
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'$'));
    plain.then_some(text)
}

/// Parses `#3 [ffff883ad675b3b8] f at ffffffff8104fa60` of crash, `#1  f+0x1/0x2` and `#1  f (kernel/x.c:1:2)` of drgn.
fn numbered(text: &str) -> Option<Frame<'_>> {
    let (number, rest) = text.strip_prefix('#')?.split_once(' ')?;
    if !number.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let rest = rest.trim_start();
    let Some((inner, rest)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
        return with_offset(rest).or_else(|| decoded(rest));
    };
    // 32-bit ARM: `#0 [<c0b420ec>] (f) from [<c0b423c8>]`.
    if let Some((name, rest)) = rest.trim_start().strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        let at = inner.strip_prefix('<').and_then(|at| at.strip_suffix('>')).filter(|at| address(at));
        return at.filter(|_| rest.trim_start().starts_with("from [<")).and_then(|_| named(name, true));
    }
    let (name, rest) = rest.trim_start().split_once(' ')?;
    let at = rest.split_whitespace().skip_while(|word| *word != "at").nth(1)?;
    let name = name.split_once('+').map_or(name, |(name, _)| name);
    (address(inner) && address(at)).then_some(())?;
    Some(Frame { name: identifier(name)?, trusted: true })
}

/// Parses the function after one or more addresses in brackets. User-mode Linux prints the stack address first
/// (`08f9f9a0:  [<0805d8cb>] f+0x3b/0x83`).
fn addressed(text: &str) -> Option<Frame<'_>> {
    let of_uml = text.split_once(": ").filter(|(at, _)| at.len() >= 8 && hex(at)).map(|(_, rest)| rest.trim_start());
    let text = of_uml.filter(|rest| rest.starts_with("[<")).unwrap_or(text);
    let (mut rest, mut any) = (text.trim_start_matches('('), false);
    loop {
        let after = rest.strip_prefix("[<").and_then(|rest| rest.split_once(">]"));
        let after = after.or_else(|| rest.strip_prefix('[').and_then(|rest| rest.split_once(']')));
        let after = after.or_else(|| rest.strip_prefix('<').and_then(|rest| rest.split_once('>')));
        let Some((inner, after)) = after.filter(|(inner, _)| hex(inner.trim()) || (*inner).starts_with("__ptrval"))
        else {
            break;
        };
        // `[1234]` alone is a pid; `[<0>]` is from /proc/PID/stack.
        any |= rest.starts_with("[<") || inner.trim().len() >= 8;
        rest = after.trim_start();
    }
    if !any {
        return None;
    }
    if let Some(inner) = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()) {
        return named(inner, true);
    }
    if let Some(inner) = rest.strip_prefix('(') {
        return named(inner.split([')', ' ']).next()?, true);
    }
    // `[ffff9e334e3e7b58] rwsem_down_read_slowpath at ffffffff85ea7ed3`: crash's `bt -t`.
    if let Some(found) = at_address(rest) {
        return Some(found);
    }
    let trusted = !rest.starts_with('?') && !rest.contains("(unreliable)");
    let rest = rest.trim_start_matches(['?', ' ']);
    let symbol = rest.split([' ', ')']).next()?;
    // 2.4: `[<c0107a42>] __down [kernel] 0x72`.
    if symbol.contains('+') || rest.contains("[kernel]") || rest == symbol { named(symbol, trusted) } else { None }
}

/// Parses `:ext3:f+0x1/0x2`, `f+12` or `f`.
fn named(symbol: &str, trusted: bool) -> Option<Frame<'_>> {
    let symbol = symbol.strip_prefix(':').and_then(|rest| rest.split_once(':')).map_or(symbol, |(_, name)| name);
    let name = symbol.split_once('+').map_or(symbol, |(name, _)| name);
    // An old /proc/PID/stack ends with `[<ffffffffffffffff>] 0xffffffffffffffff`.
    Some(Frame { name: identifier(name).filter(|name| !name.starts_with("0x"))?, trusted })
}

/// Parses `f+0x1/0x2 [mod]`, `? f+0x1/0x2` or `f from g+0x3/0x4`.
fn with_offset(text: &str) -> Option<Frame<'_>> {
    let trusted = !text.starts_with('?') && !text.contains("(unreliable)");
    let text = text.trim_start_matches(['?', ' ']);
    let mut words = text.split_whitespace();
    let symbol = words.next()?.trim_end_matches([',', ')']);
    // The name of a module follows its function in brackets: `f [cifs] from g+0x3/0x4 [cifs]`.
    let mut behind = words.skip_while(|word| word.starts_with('[') && word.ends_with(']'));
    if let (Some(name), Some("from"), Some(caller)) = (identifier(symbol), behind.next(), behind.next()) {
        return is_symbol(caller).then_some(Frame { name, trusted });
    }
    is_symbol(symbol).then(|| named(symbol, trusted))?
}

/// Parses `(f) from (g+0x3/0x4)`.
fn without_addresses(text: &str) -> Option<Frame<'_>> {
    let (callee, caller) = text.strip_prefix('(')?.split_once(") from (")?;
    let name = callee.split(['+', ' ']).next()?;
    is_symbol(caller.split([')', ' ']).next()?).then_some(())?;
    Some(Frame { name: identifier(name)?, trusted: true })
}

/// Whether the text is `f+0x1/0x2`, a format that only kernel symbols have.
fn is_symbol(text: &str) -> bool {
    let Some((name, offset)) = text.split_once("+0x") else { return false };
    let Some((offset, size)) = offset.split_once("/0x") else { return false };
    let size = size.split(['[', ',', ':']).next().unwrap_or_default();
    let name = name.strip_prefix(':').and_then(|rest| rest.split_once(':')).map_or(name, |(_, name)| name);
    identifier(name).is_some() && hex(offset) && hex(size)
}

/// Parses `f (fs/ext4/inode.c:123 (discriminator 3)) ext4`: a C file and a line in parentheses.
fn decoded(text: &str) -> Option<Frame<'_>> {
    let trusted = !text.starts_with('?');
    let (name, rest) = text.trim_start_matches(['?', ' ']).split_once(" (")?;
    let (file, line) = rest.split_once(':')?;
    let source = [".c", ".h", ".S"].iter().any(|end| file.ends_with(end)) && !file.contains(' ');
    let number = line.starts_with(|c: char| c.is_ascii_digit() || c == '?');
    (source && number).then_some(())?;
    Some(Frame { name: identifier(name.trim())?, trusted })
}

/// A line with only a function, as bpftrace (`f+12`), bcc (`f`, `b'f'`) and perf with addresses (`ffffffffa722aa06 f`)
/// print stacks. A single such line may be any word: `is_run` checks a run of them.
#[must_use]
pub fn bare(text: &str) -> Option<&str> {
    let text = text.trim().trim_end_matches(',');
    let kernel = |at: &str| at.len() == 16 && at.starts_with("ffff") && hex(at);
    let text = text.split_once(' ').filter(|(at, _)| kernel(at)).map_or(text, |(_, rest)| rest.trim_start());
    let text = text.strip_prefix("b'").and_then(|rest| rest.strip_suffix('\'')).unwrap_or(text);
    let text = text.strip_suffix("_[k]").unwrap_or(text);
    let (name, offset) = text.split_once('+').unwrap_or((text, "0"));
    let offset = offset.strip_prefix("0x").unwrap_or(offset);
    identifier(name).filter(|_| hex(offset))
}

/// Prefixes of names that occur only in kernels.
const KERNEL: &[&str] = &[
    "btrfs_",
    "ext4_",
    "xfs_",
    "jbd2_",
    "nfs_",
    "blk_mq_",
    "submit_bio",
    "__x64_sys_",
    "rwsem_down",
    "__filemap",
    "filemap_",
    "folio_",
    "shrink_",
    "try_to_free_",
    "vfs_",
];

/// Whether these consecutive lines are a stack of bare functions: at least three, two thirds of them with an
/// underscore, and one that implies a cause, has a prefix of `KERNEL`, or is at the root of many stacks.
pub fn is_run<'a>(lines: impl Iterator<Item = &'a str>) -> bool {
    let (mut all, mut underscored, mut known) = (0, 0, false);
    for name in lines.map_while(bare).take(64) {
        all += 1;
        underscored += usize::from(name.contains('_'));
        known |= cause_of(name).is_some()
            || KERNEL.iter().any(|start| name.starts_with(start))
            || [
                "do_syscall_64",
                "io_schedule",
                "schedule",
                "ret_from_fork",
                "kthread",
                "vfs_write",
                "entry_SYSCALL_64_after_hwframe",
            ]
            .contains(&name);
    }
    all >= 3 && underscored * 3 >= all * 2 && known
}

#[cfg(test)]
mod tests {
    use super::{bare, frame, is_plain, is_run, plain, side_by_side, traced};

    /// `plain` agrees with `frame` on frames, and rejects all other lines.
    #[test]
    fn the_fast_path_for_the_commonest_format_agrees_with_the_full_parser() {
        for line in [" io_schedule+0x46/0x70", "ext4_sync_file+0x21a/0x3c0 [ext4]", "__switch_to.isra.0+0x2/0x90"] {
            assert_eq!(plain(line), frame(line).filter(|frame| frame.trusted).map(|frame| frame.name), "{line}");
            assert!(plain(line).is_some(), "{line}");
        }
        for line in [
            "? io_schedule+0x46/0x70",
            "RIP: 0010:io_schedule+0x46/0x70",
            "f+0x1/0x2 [cifs] from g+0x3/0x4 [cifs]",
            "io_schedule+0x46/0x70 (unreliable)",
            "INFO: task java:1 blocked for more than 120 seconds.",
            "a+0x/0x",
            "+0x1/0x2",
            "",
        ] {
            assert!(!is_plain(line) && plain(line).is_none(), "{line}");
        }
    }

    #[test]
    fn frames_of_all_kernels_and_tools_parse() {
        for (line, name, trusted) in [
            ("[<ffffffff81>] io_schedule+0x73/0xc0", "io_schedule", true),
            ("Call Trace: [schedule+969/1504] [<c6abefa1>] [xfs_sync+21/32]", "schedule", true),
            ("   [kupdate+317/336] [_stext+0/64]", "kupdate", true),
            ("Trace; c0106f3c <__down+5c/c0>", "__down", true),
            ("Call Trace:<ffffffff804e5522>{schedule_timeout+34}", "schedule_timeout", true),
            (" jbd2_log_wait_commit+0xe5/0x140 [jbd2]", "jbd2_log_wait_commit", true),
            (" ? prepare_to_wait+0x1/0x2", "prepare_to_wait", false),
            ("[<c0123456>] ? sync_page+0x0/0x40", "sync_page", false),
            ("RIP: 0010:[<ffffffff8113a1b2>]  [<ffffffff8113a1b2>] shrink_slab+0x92/0x1a0", "shrink_slab", true),
            ("RIP: 0010:native_queued_spin_lock_slowpath+0x1a/0x1e0", "native_queued_spin_lock_slowpath", true),
            ("pc : __pi_clear_page+0x10/0x24", "__pi_clear_page", true),
            ("EIP is at shrink_icache_memory+0x12/0x1a0", "shrink_icache_memory", true),
            ("[<0>] wait_on_page_bit+0x172/0x250", "wait_on_page_bit", true),
            ("[<ffffffff88031234>] :jbd:log_wait_commit+0xa3/0xf5", "log_wait_commit", true),
            ("<ffffffff8014a2f1>{:ext3:ext3_sync_file+12}", "ext3_sync_file", true),
            ("[<c0107a42>] __down [kernel] 0x72 (0xc1a2ff)", "__down", true),
            ("[<c0519ab4>] (schedule+0x1/0x4) from [<c0518e70>] (io_schedule+0x3/0x4)", "schedule", true),
            ("[<c0519ab4>] (schedule) from [<c0518e70>] (io_schedule+0x3/0x4)", "schedule", true),
            (" #2 [<c0b459d4>] (rwsem_down_read_failed) from [<c0b44fa0>]", "rwsem_down_read_failed", true),
            (" __schedule from schedule+0x60/0xf8", "__schedule", true),
            ("SMB2_open_init [cifs] from smb2_compound_op+0x1b8/0x1b10 [cifs]", "SMB2_open_init", true),
            ("[c0000003fbb3f9d0] [c000000000123] .io_schedule+0x94/0xf0 (unreliable)", "io_schedule", false),
            ("([<00000000001234ab>] io_schedule+0x12/0x34)", "io_schedule", true),
            ("[000000000043f5f4] xfs_buf_lock+0x12/0x34 [xfs]", "xfs_buf_lock", true),
            (" #6 [ffff883ad675b3b8] flush_tlb_others_ipi at ffffffff8104fa60", "flush_tlb_others_ipi", true),
            ("#10 [ffff883ad675b490] xfs_buf_lock+18 at ffffffffa01544e4 [xfs]", "xfs_buf_lock", true),
            ("#1  schedule (kernel/sched/core.c:6456:3)", "schedule", true),
            ("#2  io_schedule+0x46/0x72", "io_schedule", true),
            ("ext4_mb_find_by_goal (fs/ext4/mballoc.c:2150 (discriminator 3)) ext4", "ext4_mb_find_by_goal", true),
            ("invalidate_inodes at ffffffff8f3b4784", "invalidate_inodes", true),
            ("[ffff9e334e3e7c08] xfs_ilock at ffffffffc046d4d2 [xfs]", "xfs_ilock", true),
            ("START: __schedule at ffffffff85ea4cc6", "__schedule", true),
            ("rwsem_down_write_slowpath.constprop.0+0x1/0x2", "rwsem_down_write_slowpath.constprop.0", true),
        ] {
            let found = frame(line).unwrap_or_else(|| panic!("no frame: {line}"));
            assert_eq!((found.name, found.trusted), (name, trusted), "{line}");
        }
    }

    #[test]
    fn lines_with_several_frames_parse() {
        let all = |line| side_by_side(line).collect::<Vec<_>>();
        assert_eq!(all("Call Trace: [schedule+969/1504] [<c6abefa1>] [xfs_sync+21/32]"), ["schedule", "xfs_sync"]);
        let old = "   <ffffffff80269f87>{xfs_qm_dqunpin_wait+220} <ffffffff80140e74>{:xfs:xfs_trans_read_buf+141}";
        assert_eq!(all(old), ["xfs_qm_dqunpin_wait", "xfs_trans_read_buf"]);
        assert!(all("[schedule+969/1504] and text").is_empty() && all("[c6abefa1] [kupdate]").is_empty());
    }

    #[test]
    fn other_lines_are_not_frames() {
        for line in [
            "",
            "a+b",
            "[1234] hello",
            "[a+b/c] [d]",
            "[1+2/3] of text",
            "[<ffffffffffffffff>] 0xffffffffffffffff",
            "[sda] Write cache: enabled",
            "#3 is the worst",
            "see mm/vmscan.c:123",
            "[   12.345678] ext4: mounted",
            // perf script: samples of a CPU; events are named on their own line.
            "ffffffffb4e2c1a1 io_schedule+0x11 ([kernel.kallsyms])",
            "deadbeef 12 (x)",
            "Nov 22 10:00:00 host sshd[12]: x",
        ] {
            assert_eq!(frame(line), None, "{line}");
        }
    }

    #[test]
    fn frames_of_tracers_are_recognized() {
        let found = traced("ffffffffb4e2c1a1 io_schedule+0x11 ([kernel.kallsyms])").expect("a frame");
        assert_eq!(found.name, "io_schedule");
        assert_eq!(traced("7f1234567890 read+0x10 (/usr/lib/libc.so.6)"), None);
    }

    #[test]
    fn bare_functions_count_only_as_a_run() {
        assert_eq!((bare("    b'io_schedule'"), bare("  vfs_write+123")), (Some("io_schedule"), Some("vfs_write")));
        assert_eq!(bare("  ffffffffa722aa06 shrink_inactive_list"), Some("shrink_inactive_list"));
        assert_eq!((bare("7f1234567890abcd main_loop"), bare("ffff main_loop")), (None, None));
        assert!(is_run(["  btrfs_tree_read_lock_nested", "btrfs_search_slot", "  down_read"].into_iter()));
        assert!(!is_run(["user_name", "pass_word", "home_page"].into_iter()), "no kernel function");
        assert!(!is_run(["io_schedule", "vfs_write"].into_iter()), "two lines are not a stack");
    }
}
