//! `flatwater top`: victims and aggressors of the last seconds, on one screen.
//!
//! A [`source::Source`] delivers the table: a running daemon over its socket, or hooks of this process. [`view::View`]
//! groups the rows, filters them, and can freeze them. [`screen::draw`] draws the view.
//!
//! ```text
//! source (socket of the daemon, or own hooks) --> view (grouped, filtered, frozen) --> screen
//! ```

pub mod screen;
pub mod source;
pub mod view;

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use source::Source;
use view::{Group, View};

#[derive(Debug, thiserror::Error)]
pub enum TopError {
    #[error(
        "top requires a terminal; for programs, `flatwater watch status` and `flatwater watch metrics` print the same data"
    )]
    NoTerminal,
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

/// Interval between two requests to the source.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const KEY_PATIENCE: Duration = Duration::from_millis(200);

/// Returns an error unless stdin and stdout are terminals. Call it before attaching hooks, which would be useless.
pub fn require_terminal() -> Result<(), TopError> {
    let both = io::stdout().is_terminal() && io::stdin().is_terminal();
    both.then_some(()).ok_or(TopError::NoTerminal)
}

/// Shows the source until the user quits or the flag is set.
pub fn run(mut source: Box<dyn Source>, stop: &AtomicBool) -> Result<(), TopError> {
    require_terminal()?;
    // Also restores the terminal after a panic.
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, source.as_mut(), stop);
    ratatui::restore();
    shown
}

fn show(terminal: &mut ratatui::DefaultTerminal, source: &mut dyn Source, stop: &AtomicBool) -> Result<(), TopError> {
    let mut view = View::new(source.name());
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            next = Instant::now() + LOOK_EVERY;
            view.take(source.now());
        }
        if let Some(answer) = source.dumped() {
            view.say(match answer {
                Ok(path) => format!("recording {path}"),
                Err(why) => format!("no recording: {why}"),
            });
        }
        terminal.draw(|frame| screen::draw(frame, &view))?;
        if !event::poll(KEY_PATIENCE)? {
            source.idle();
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Press && !act(key, &mut view, source) {
            return Ok(());
        }
    }
    Ok(())
}

/// Handles a key. Returns false if the user quits.
fn act(key: KeyEvent, view: &mut View, source: &mut dyn Source) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => return false,
        KeyCode::Char('q') => return false,
        KeyCode::Esc if view.help => view.help = false,
        KeyCode::Char('?' | 'h') => view.help = !view.help,
        KeyCode::Char('c') => view.group_by(Group::Cgroup),
        KeyCode::Char('p') => view.group_by(Group::Program),
        KeyCode::Char('d') => view.group_by(Group::Device),
        KeyCode::Char('u') => view.group_by(Group::Cause),
        KeyCode::Char('f' | ' ') => view.freeze(),
        KeyCode::Char('D') => {
            source.dump();
            view.say("recording requested".to_owned());
        }
        KeyCode::Down | KeyCode::Char('j') => view.select(1),
        KeyCode::Up | KeyCode::Char('k') => view.select(-1),
        KeyCode::Enter => view.narrow(),
        KeyCode::Esc | KeyCode::Backspace => view.widen(),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::act;
    use super::source::{Look, Source, SourceError};
    use super::view::{Group, View};
    use flatwater_watch::now::{Now, Row};

    struct Fixed;
    impl Source for Fixed {
        fn name(&self) -> String {
            "a test".to_owned()
        }
        fn now(&mut self) -> Look {
            Ok(Now { rows: vec![Row { cgroup: "/db".to_owned(), calls: 1, ..Row::default() }], ..Now::default() })
        }
        fn dump(&mut self) {}
        fn dumped(&mut self) -> Option<Result<String, SourceError>> {
            Some(Err(SourceError::NoRecording))
        }
    }

    fn press(view: &mut View, code: KeyCode) -> bool {
        act(KeyEvent::new(code, KeyModifiers::NONE), view, &mut Fixed)
    }

    #[test]
    fn each_key_does_what_the_help_says() {
        let mut view = View::new("a test".to_owned());
        view.take(Fixed.now());
        for (key, group) in [('p', Group::Program), ('d', Group::Device), ('u', Group::Cause), ('c', Group::Cgroup)] {
            assert!(press(&mut view, KeyCode::Char(key)));
            assert_eq!(view.group, group);
        }
        assert!(press(&mut view, KeyCode::Enter));
        assert_eq!(view.narrowed.len(), 1);
        assert!(press(&mut view, KeyCode::Backspace));
        assert!(view.narrowed.is_empty());
        assert!(press(&mut view, KeyCode::Char('D')));
        assert!(view.message.contains("recording requested"), "{}", view.message);
        assert!(press(&mut view, KeyCode::Char('?')) && view.help);
        assert!(press(&mut view, KeyCode::Esc) && !view.help);
        assert!(!press(&mut view, KeyCode::Char('q')));
        assert!(!act(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &mut view, &mut Fixed));
    }
}
