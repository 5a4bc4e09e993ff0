//! Shows the progress of a running command.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::common;
use flatwater_host::run::Progress;
use flatwater_recording::printable;
use flatwater_recording::units::Nanos;

/// Progress on standard error: a bar on a terminal, lines elsewhere.
pub struct Bar(Option<ProgressBar>);

impl Bar {
    pub fn new() -> Bar {
        let terminal = std::io::stderr().is_terminal();
        Bar(terminal.then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:24} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        }))
    }

    pub fn tell(&self, progress: Progress<'_>) {
        match (&self.0, progress) {
            (Some(bar), Progress::Message(text)) => bar.println(printable::output(text)),
            (None, Progress::Message(text)) => common::say(format_args!("flatwater: {text}")),
            (Some(bar), Progress::Measuring { elapsed_ns, total_ns, slow_calls, lost_ns }) => {
                bar.set_length(total_ns);
                bar.set_position(elapsed_ns);
                let (elapsed, total, lost) = (Nanos(elapsed_ns).as_secs_f64(), Nanos(total_ns), Nanos(lost_ns));
                bar.set_message(format!("{elapsed:.0} s of {total}, {slow_calls} slow calls, {lost} lost"));
            }
            (None, Progress::Measuring { .. }) => {}
        }
    }

    pub fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
