//! Tables that fit the terminal, and lists of fields.

use std::iter::once;

use super::print;
use crate::timeline::{cut, terminal_columns};

/// The least width of the last column, in characters.
const LAST: usize = 16;

/// The least width of a column between the first and the last, in characters.
const MIDDLE: usize = 10;

/// The least width of the ids in the first column, in characters.
const ID: usize = 13;

/// The gap between two columns.
const GAP: &str = "  ";

/// Prints rows as a table with aligned columns. Text that does not fit the terminal is cut: the
/// last column first, then the columns before it, then the middle of the ids in the first one.
/// `spare` is a column that is left out before any id is cut.
pub(crate) fn print_table(rows: &[Vec<String>], spare: Option<usize>) {
    let width = terminal_columns().unwrap_or(usize::MAX);
    let one_line = |row: &Vec<String>| row.iter().map(|cell| first_line(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(one_line).collect();
    for line in fit(&rows, spare, width) {
        print(&format!("{line}\n"));
    }
}

/// Returns the first line of a cell, with `…` for further lines.
fn first_line(cell: &str) -> String {
    match cell.split_once('\n') {
        Some((first, _)) => format!("{first}…"),
        None => cell.to_owned(),
    }
}

/// Prints a line for each field that has a value, and further lines of the value below it.
pub(super) fn print_fields(fields: &[(&str, String)]) {
    for (name, value) in fields {
        for (number, line) in value.lines().enumerate() {
            let name = if number == 0 { name } else { "" };
            print(&format!("{name:<13} {}\n", cut(line, usize::MAX)));
        }
    }
}

/// Returns the lines of a table that is at most `width` characters wide.
fn fit(rows: &[Vec<String>], spare: Option<usize>, width: usize) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let mut widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let excess = |widths: &[usize]| {
        let gaps = GAP.len() * columns.saturating_sub(1);
        (widths.iter().sum::<usize>() + gaps).saturating_sub(width)
    };
    for column in (0..columns).rev() {
        let least = match column {
            0 => ID,
            _ if column + 1 == columns => LAST,
            _ => MIDDLE,
        };
        let beyond = excess(&widths);
        if let Some(spare) = spare.filter(|_| column == 0 && beyond > 0) {
            let mut rows = rows.to_vec();
            for row in &mut rows {
                row.remove(spare);
            }
            return fit(&rows, None, width);
        }
        widths[column] -= beyond.min(widths[column].saturating_sub(least));
    }
    rows.iter().map(|row| line(row, &widths, width)).collect()
}

fn line(row: &[String], widths: &[usize], width: usize) -> String {
    let cells = row.iter().zip(widths).enumerate();
    let cells = cells.map(|(column, (cell, &width))| {
        let tail = match column {
            0 => width.saturating_sub(1) / 2,
            _ => 0,
        };
        format!("{:<width$}", shorten(cell, width, tail))
    });
    let line = cells.collect::<Vec<_>>().join(GAP);
    cut(&shorten(line.trim_end(), width, 0), usize::MAX)
}

/// Returns a text of at most `width` characters. Where it is longer, `…` stands for everything between its
/// beginning and the last `tail` characters.
fn shorten(text: &str, width: usize, tail: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let head = text.chars().take(width.saturating_sub(tail + 1));
    let end = text.chars().skip(count - tail);
    head.chain(once('…')).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of `tavern runs list`, whose third column is spare.
    fn runs(width: usize) -> Vec<String> {
        let rows = [
            ["RUN", "STATE", "SUBJECT", "TIME", "RESULT"],
            [
                "turn_0190f5a2c3d47e8f9a0b1c2d3e4f5a6b",
                "succeeded",
                "weather_guide_of_the_north",
                "1234 ms",
                r#"{"answer":"It rains in the north."}"#,
            ],
        ];
        fit(
            &rows.map(|row| row.map(str::to_owned).to_vec()),
            Some(2),
            width,
        )
    }

    #[test]
    fn a_narrow_terminal_costs_the_result_then_the_subject_then_the_middle_of_the_id() {
        for (width, expected) in [
            (
                usize::MAX,
                r#"turn_0190f5a2c3d47e8f9a0b1c2d3e4f5a6b  succeeded  weather_guide_of_the_north  1234 ms  {"answer":"It rains in the north."}"#,
            ),
            (
                105,
                r#"turn_0190f5a2c3d47e8f9a0b1c2d3e4f5a6b  succeeded  weather_guide_of_the_north  1234 ms  {"answer":"It rai…"#,
            ),
            (
                90,
                r#"turn_0190f5a2c3d47e8f9a0b1c2d3e4f5a6b  succeeded  weather_guid…  1234 ms  {"answer":"It r…"#,
            ),
            (
                80,
                r#"turn_0190f5a2c3d47e8f9a0b1c2d3e4f5a6b  succeeded  1234 ms  {"answer":"It rains …"#,
            ),
            (
                60,
                r#"turn_0190f5…2d3e4f5a6b  succeeded  1234 ms  {"answer":"It r…"#,
            ),
            (40, "turn_0…4f5a6b  succeeded  1234 ms  {\"an…"),
            (20, "turn_0…4f5a6b  succ…"),
        ] {
            let lines = runs(width);
            assert_eq!(lines[1], expected, "{width}");
            assert!(lines.iter().all(|line| line.chars().count() <= width));
        }
    }

    #[test]
    fn a_cell_of_several_lines_shows_the_first() {
        assert_eq!(
            first_line("it failed\nOn standard output:\n1"),
            "it failed…"
        );
        assert_eq!(first_line("it failed"), "it failed");
    }

    #[test]
    fn a_cell_cannot_steer_the_terminal() {
        let rows = [vec!["a\u{1b}[2J".to_owned()]];
        assert_eq!(fit(&rows, None, 80), ["a\u{fffd}[2J"]);
    }
}
