//! Tables with aligned columns.

use super::super::numbers::clean;
use super::super::tables::Table;
use super::paint::{Ink, Page};

/// Rows in a summary; the page and CSV have all.
const ROWS_MAX: usize = 40;

pub fn print(page: &mut Page, table: &Table) {
    page.line("");
    page.wrapped("", Some(Ink::Strong), &table.title);
    for line in &table.lines {
        page.wrapped("  ", None, line);
    }
    grid(page, &table.columns, &table.rows);
    for note in &table.notes {
        page.wrapped("  ", None, note);
    }
}

/// Prints rows with columns as wide as their widest cell; numbers are right-aligned.
pub fn grid(page: &mut Page, columns: &[(&str, bool)], rows: &[Vec<String>]) {
    let shown = rows.iter().take(ROWS_MAX);
    let heading: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut cells: Vec<Vec<String>> = Vec::new();
    let headed = heading.iter().any(|name| !name.is_empty());
    if headed {
        cells.push(heading);
    }
    cells.extend(shown.map(|row| row.iter().map(|cell| clean(cell)).collect()));
    let width_of = |place: usize| cells.iter().filter_map(|row| row.get(place)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns.len()).map(|place| width_of(place).unwrap_or_default()).collect();
    for (number, row) in cells.iter().enumerate() {
        let mut line = String::from(" ");
        for ((cell, width), (_, right)) in row.iter().zip(&widths).zip(columns) {
            let padded = if *right { format!(" {cell:>width$}") } else { format!(" {cell:<width$}") };
            line.push(' ');
            line.push_str(padded.get(1..).unwrap_or_default());
            line.push(' ');
        }
        let line = line.trim_end();
        if number == 0 && headed {
            let line = page.paint(Ink::Quiet, line);
            page.line(&line);
        } else {
            page.line(line);
        }
    }
    if rows.len() > ROWS_MAX {
        page.line(&format!("  ... and {} more rows", rows.len() - ROWS_MAX));
    }
}
