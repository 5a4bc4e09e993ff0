//! [`Mode`]: how appended bytes reach the file.

/// How appended bytes reach the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The writer stores into locked memory; a flusher thread writes the file.
    Ring,
    /// The writer stores into a mapped, populated and locked window of a preallocated file.
    Window,
    /// The method of 2012: the writer calls `write()` on preallocated zeros that a helper thread reads ahead.
    Prefetch,
    /// The writer calls `write()`; nothing is prepared.
    Plain,
}

impl Mode {
    /// The name used by `--set precursor=` and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Ring => "ring",
            Mode::Window => "window",
            Mode::Prefetch => "prefetch",
            Mode::Plain => "plain",
        }
    }

    /// The mode of that name. `auto` is not a mode but a request to choose one.
    pub fn from_name(name: &str) -> Option<Mode> {
        [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain].into_iter().find(|m| m.name() == name)
    }
}
