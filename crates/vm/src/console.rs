//! Reads a guest's output within limits: the guest is untrusted, and its kernel and workload may print anything,
//! without end.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::guest::Line;

/// Maximum length of a line. Protocol lines are far shorter; the rest of a longer line is dropped.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Maximum number of unread lines. Beyond it the guest's serial port blocks, which only affects the guest.
const LINES_WAITING_MAX: usize = 256;
/// Kept bytes of the console: its beginning (the kernel's version and command line) and its end.
const BEGIN_BYTES_MAX: usize = 64 << 10;
const END_BYTES_MAX: usize = 1 << 20;

/// Calls `take` with each line, truncated to `bytes_max`, until the input ends or `take` returns false.
pub fn each_line(from: &mut impl BufRead, bytes_max: usize, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        let available = from.fill_buf()?;
        if available.is_empty() {
            if !line.is_empty() {
                take(&line);
            }
            return Ok(());
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let piece = available.get(..end.unwrap_or(available.len())).unwrap_or_default();
        let room = bytes_max.saturating_sub(line.len()).min(piece.len());
        line.extend_from_slice(piece.get(..room).unwrap_or_default());
        let used = piece.len() + usize::from(end.is_some());
        from.consume(used);
        if end.is_some() {
            if !take(&line) {
                return Ok(());
            }
            line.clear();
        }
    }
}

/// The protocol lines of a guest, as they arrive.
pub fn lines(from: impl Read + Send + 'static) -> Receiver<Line> {
    let (send, receive): (SyncSender<Line>, Receiver<Line>) = sync_channel(LINES_WAITING_MAX);
    std::thread::spawn(move || {
        let _ = each_line(&mut BufReader::new(from), LINE_BYTES_MAX, |line| {
            let text = String::from_utf8_lossy(line);
            Line::parse(text.trim()).is_none_or(|line| send.send(line).is_ok())
        });
    });
    receive
}

/// The beginning and the end of a stream of any length.
#[derive(Debug)]
pub struct Kept {
    begin: Vec<u8>,
    begin_bytes_max: usize,
    end: Vec<u8>,
    end_bytes_max: usize,
    dropped_bytes: u64,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept::bounded(BEGIN_BYTES_MAX, END_BYTES_MAX)
    }
}

impl Kept {
    #[must_use]
    pub fn bounded(begin_bytes_max: usize, end_bytes_max: usize) -> Kept {
        Kept { begin: Vec::new(), begin_bytes_max, end: Vec::new(), end_bytes_max, dropped_bytes: 0 }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        let room = self.begin_bytes_max.saturating_sub(self.begin.len()).min(bytes.len());
        let (begin, rest) = bytes.split_at(room);
        self.begin.extend_from_slice(begin);
        self.end.extend_from_slice(rest);
        // Cut only at twice the length, so that each byte is moved once.
        if self.end.len() > 2 * self.end_bytes_max {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let over = self.end.len().saturating_sub(self.end_bytes_max);
        self.end.drain(..over);
        self.dropped_bytes += over as u64;
    }

    #[must_use]
    pub fn text(&mut self) -> String {
        self.cut();
        let dropped = match self.dropped_bytes {
            0 => String::new(),
            bytes => format!("\n[flatwater: {bytes} bytes of the console were dropped here]\n"),
        };
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        shown(&self.begin) + &dropped + &shown(&self.end)
    }
}

/// The console of a guest, read by a thread until it ends.
#[derive(Clone, Debug, Default)]
pub struct Console(Arc<Mutex<Kept>>);

impl Console {
    pub fn read(from: impl Read + Send + 'static) -> Console {
        let console = Console::default();
        let kept = console.clone();
        let mut from = from;
        std::thread::spawn(move || {
            let mut chunk = vec![0; 16 << 10];
            while let Ok(length @ 1..) = from.read(&mut chunk) {
                kept.kept().add(chunk.get(..length).unwrap_or_default());
            }
        });
        console
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn text(&self) -> String {
        self.kept().text()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::{END_BYTES_MAX, Kept, each_line};

    /// S6: 1.5 s of serial output without a newline took 2.7 GiB of memory.
    #[test]
    fn an_endless_line_is_bounded_in_memory() {
        let endless = std::io::repeat(b'x').take(64 << 20);
        let rest: &[u8] = b"\n@done\n@sa";
        let (mut lines, mut most) = (Vec::new(), 0);
        each_line(&mut BufReader::new(endless.chain(rest)), 1000, |line| {
            most = most.max(line.len());
            lines.push(line.to_vec());
            true
        })
        .expect("memory");
        assert_eq!((lines.len(), most), (3, 1000));
        assert_eq!((lines[1].as_slice(), lines[2].as_slice()), (&b"@done"[..], &b"@sa"[..]));
    }

    #[test]
    fn the_beginning_and_the_end_of_a_console_are_kept() {
        let mut kept = Kept::default();
        kept.add(b"Linux version 6.1\n");
        for _ in 0..200 {
            kept.add(&[b'x'; 64 << 10]);
        }
        kept.add(b"Kernel panic - not syncing\n");
        let text = kept.text();
        assert!(text.starts_with("Linux version 6.1\n") && text.ends_with("not syncing\n"));
        assert!(text.contains("were dropped") && text.len() < 2 * END_BYTES_MAX, "{}", text.len());
    }
}
