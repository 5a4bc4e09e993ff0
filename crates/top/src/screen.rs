//! Draws the screen: two lines of status, the victims, the aggressors, and the keys. On a narrow terminal the less
//! important columns are left out.

use flatwater_recording::units::Nanos;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Table, TableState};

use crate::view::{Line, View};

/// Smallest terminal.
const COLUMNS_MIN: u16 = 30;
const ROWS_MIN: u16 = 8;
/// Widths from which a column is shown.
const WITH_WORST: u16 = 60;
const WITH_CALL: u16 = 70;
const WITH_CAUSE: u16 = 50;
/// Width from which the longest names of causes fit.
const WIDE: u16 = 110;

const HELP: &[&str] = &[
    "c p d u  group by cgroup, program, device, cause",
    "j k      next line, previous line (also arrows)",
    "Enter    only this line's calls;  Backspace: back",
    "f        freeze, or continue",
    "D        make a recording of the last minute",
    "?        this help;  q: quit",
    "",
    "STALL is the duration of calls over the threshold in the",
    "last seconds; MADE BY is charged with most of that time.",
    "If no aggressor was observed, the column shows -.",
];

pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        let text =
            format!("flatwater top needs at least {COLUMNS_MIN}x{ROWS_MIN}, this is {}x{}", area.width, area.height);
        frame.render_widget(Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true }), area);
        return;
    }
    let aggressors = view.aggressors();
    let below = (aggressors.len() as u16 + 1).clamp(2, area.height / 3);
    let parts =
        Layout::vertical([Constraint::Length(2), Constraint::Min(3), Constraint::Length(below), Constraint::Length(1)]);
    let [head, victims, makers, keys] = parts.areas(area);
    frame.render_widget(Paragraph::new(head_of(view)), head);
    draw_victims(frame, view, victims);
    draw_aggressors(frame, &aggressors, makers);
    frame.render_widget(Paragraph::new(keys_of(view, keys.width)).style(bold()), keys);
    if view.help {
        draw_help(frame, area);
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn head_of(view: &View) -> Vec<Text<'static>> {
    let now = &view.now;
    let (calls, stall_ns) = view.total();
    let first = match (view.looks, now.calls_seen) {
        (0, _) => format!("flatwater top, {}", view.source),
        (_, false) => "no calls are observed: this is not quiet".to_owned(),
        _ => {
            format!("{calls} calls over {} lost {} in {}", Nanos(now.threshold_ns), Nanos(stall_ns), Nanos(now.span_ns))
        }
    };
    let mut second: Vec<String> = Vec::new();
    if view.frozen {
        second.push("FROZEN".to_owned());
    }
    if !view.trouble.is_empty() {
        second.push(view.trouble.clone());
    }
    second.push(format!("by {}", view.group.name()));
    for (group, value) in &view.narrowed {
        second.push(format!("{} = {}", group.name(), known(value)));
    }
    if view.looks > 0 {
        second.push(if now.exact { "exact times".to_owned() } else { "by sleeps".to_owned() });
        if now.own_cpu_ratio > 0.0 {
            second.push(format!("own {:.2} %", now.own_cpu_ratio * 100.0));
        }
        if !now.shed.is_empty() && now.shed != "nothing" {
            second.push(format!("shed: {}", now.shed));
        }
    }
    second.push(view.source.clone());
    vec![Text::from(Span::styled(first, bold())), Text::from(second.join(" | "))]
}

/// A name, or `not known` instead of a blank.
fn known(name: &str) -> &str {
    if name.is_empty() { "not known" } else { name }
}

fn draw_victims(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let lines = view.lines();
    let width = area.width;
    let mut heads = vec![view.group.name().to_uppercase(), "CALLS".to_owned(), "STALL".to_owned()];
    let mut widths = vec![Constraint::Fill(1), Constraint::Length(5), Constraint::Length(8)];
    if width >= WITH_WORST {
        heads.push("WORST".to_owned());
        widths.push(Constraint::Length(8));
    }
    if width >= WITH_CALL {
        heads.push("CALL".to_owned());
        widths.push(Constraint::Length(9));
    }
    if width >= WITH_CAUSE {
        heads.push("CAUSE".to_owned());
        widths.push(Constraint::Length(if width >= WIDE { 18 } else { 14 }));
    }
    heads.push("MADE BY".to_owned());
    widths.push(Constraint::Length(match width {
        WIDE.. => 24,
        WITH_CAUSE.. => 12,
        _ => 8,
    }));
    let rows = lines.iter().map(|line| Row::new(cells(line, width)));
    let table = Table::new(rows, widths)
        .header(Row::new(heads).style(reversed()))
        .column_spacing(1)
        .row_highlight_style(bold().add_modifier(Modifier::UNDERLINED));
    let selected = (!lines.is_empty()).then_some(view.selected);
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
    if lines.is_empty() && view.looks > 0 && area.height > 1 {
        let nothing = Rect { y: area.y + 1, height: 1, ..area };
        frame.render_widget(Paragraph::new("no slow calls"), nothing);
    }
}

fn cells(line: &Line, width: u16) -> Vec<String> {
    let mut cells = vec![known(&line.key).to_owned(), line.calls.to_string(), Nanos(line.stall_ns).to_string()];
    if width >= WITH_WORST {
        // The time so far of a call under way.
        let so_far = if line.hanging > 0 { "+" } else { "" };
        cells.push(format!("{}{so_far}", Nanos(line.worst_ns)));
    }
    if width >= WITH_CALL {
        cells.push(line.operation.clone());
    }
    if width >= WITH_CAUSE {
        cells.push(line.cause.clone());
    }
    cells.push(if line.by.is_empty() { "-".to_owned() } else { line.by.clone() });
    cells
}

fn draw_aggressors(frame: &mut Frame<'_>, all: &[crate::view::Aggressor], area: Rect) {
    let heads = Row::new(["MAKES WAIT", "FOR", "ITS CGROUP", "VICTIMS"]).style(reversed());
    let rows = all.iter().map(|one| {
        Row::new([
            one.program.clone(),
            Nanos(one.ns).to_string(),
            known(&one.cgroup).to_owned(),
            one.victims.join(", "),
        ])
    });
    let widths = [Constraint::Fill(2), Constraint::Length(8), Constraint::Fill(3), Constraint::Fill(3)];
    frame.render_widget(Table::new(rows, widths).header(heads).column_spacing(1), area);
}

fn keys_of(view: &View, width: u16) -> String {
    if !view.message.is_empty() {
        return view.message.clone();
    }
    match width {
        64.. => "c cgroup  p program  d device  u cause  Enter narrow  f freeze  D dump  ? q",
        44.. => "c p d u group  Enter narrow  f freeze  ? q",
        _ => "c p d u f D ? q",
    }
    .to_owned()
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (62.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let lines: Vec<Text<'_>> = HELP.iter().map(|line| Text::from(*line)).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::new().borders(Borders::ALL).title("keys")), place);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::draw;
    use crate::view::View;
    use crate::view::tests::{row, view};
    use flatwater_watch::now::{Now, Row};

    fn screen(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, view)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..height).map(row).map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn at_80x24_victim_cause_and_aggressor_are_on_one_screen() {
        let text = screen(&view(), 80, 24);
        for word in ["postgresql.service", "430 ms", "journal-commit", "dd", "/jobs/backup", "vacuum", "/web", "D dump"]
        {
            assert!(text.contains(word), "{word}:\n{text}");
        }
        assert!(text.contains("4 calls over 5 ms lost 437 ms"), "{text}");
    }

    #[test]
    fn a_call_under_way_has_a_plus_after_its_time() {
        let mut hanging = View::new("a test".to_owned());
        let row = Row { hanging: 1, ..row("mail.service", "smtpd", "vda", "", 7_920) };
        hanging.take(Ok(Now { calls_seen: true, rows: vec![row], ..Now::default() }));
        let text = screen(&hanging, 80, 24);
        assert!(text.contains("7.92 s+"), "{text}");
        assert!(!screen(&view(), 80, 24).contains(" ms+"));
    }

    #[test]
    fn narrow_terminals_show_fewer_columns() {
        for width in [200, 80, 59, 40, 30] {
            let text = screen(&view(), width, 24);
            assert!(text.contains("430 ms") && text.contains("dd") && text.contains("MADE BY"), "{width}:\n{text}");
        }
        assert!(!screen(&view(), 40, 24).contains("CAUSE"));
        assert!(screen(&view(), 20, 5).contains("at least"));
        for (width, height) in [(1, 1), (30, 8), (31, 3), (500, 200)] {
            let _ = screen(&view(), width, height);
        }
    }

    #[test]
    fn not_observed_and_quiet_look_different() {
        let mut blind = View::new("a test".to_owned());
        blind.take(Ok(flatwater_watch::now::Now::default()));
        assert!(screen(&blind, 80, 24).contains("this is not quiet"));
        let mut quiet = View::new("a test".to_owned());
        quiet.take(Ok(flatwater_watch::now::Now { calls_seen: true, ..Default::default() }));
        assert!(screen(&quiet, 80, 24).contains("no slow calls"));
        let fresh = View::new("a test".to_owned());
        assert!(screen(&fresh, 80, 24).contains("first table"));
    }

    #[test]
    fn the_help_names_every_key() {
        let mut view = view();
        view.help = true;
        let text = screen(&view, 80, 24);
        for key in ["c p d u", "Enter", "Backspace", "freeze", "recording of the last minute"] {
            assert!(text.contains(key), "{key}:\n{text}");
        }
    }
}
