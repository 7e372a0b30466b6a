//! Figures with their floors, as a table.

use std::io::Write;

use crate::series::{Series, three_digits};

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Figure {
    what: String,
    measured: Series,
    floor: Option<(String, Series)>,
    goal: Option<Goal>,
}

/// A goal for a figure.
#[derive(Debug)]
struct Goal {
    limit: f64,
    percentile: Percentile,
}

/// The value of a series to which a goal applies.
#[derive(Clone, Copy, Debug)]
enum Percentile {
    Median,
    Tail,
}

impl Figure {
    /// Creates a figure from its name and its measured values.
    pub(crate) fn new(what: impl Into<String>, measured: Series) -> Self {
        Self {
            what: what.into(),
            measured,
            floor: None,
            goal: None,
        }
    }

    /// Sets the floor: the values of the bare form of the same work, measured in the same run.
    pub(crate) fn floor(mut self, what: impl Into<String>, floor: Series) -> Self {
        self.floor = Some((what.into(), floor));
        self
    }

    /// Sets the goal for the median, in the unit of the values.
    pub(crate) fn goal(mut self, limit: f64) -> Self {
        self.goal = Some(Goal {
            limit,
            percentile: Percentile::Median,
        });
        self
    }

    /// Sets the goal for the 99th percentile, in the unit of the values.
    pub(crate) fn goal_of_tail(mut self, limit: f64) -> Self {
        self.goal = Some(Goal {
            limit,
            percentile: Percentile::Tail,
        });
        self
    }

    fn cells(&self) -> [String; 9] {
        let unit = self.measured.unit();
        let (median, tail) = (self.measured.median(), self.measured.tail());
        let mut cells: [String; 9] = Default::default();
        cells[0].clone_from(&self.what);
        cells[1] = unit.print(median);
        cells[2] = unit.print(tail);
        if let Some((what, floor)) = &self.floor {
            cells[3].clone_from(what);
            cells[4] = unit.print(floor.median());
            cells[5] = unit.print(floor.tail());
            cells[6] = three_digits(median / floor.median());
        }
        if let Some(goal) = &self.goal {
            let (value, name) = match goal.percentile {
                Percentile::Median => (median, "median"),
                Percentile::Tail => (tail, "p99"),
            };
            cells[7] = format!("{name} {}", unit.print_limit(goal.limit));
            cells[8] = if unit.reaches(value, goal.limit) {
                "yes"
            } else {
                "NO"
            }
            .to_owned();
        }
        cells
    }
}

/// Writes a table with its heading that reads as plain text and as Markdown.
///
/// # Errors
/// The output rejects it.
pub(crate) fn write(heading: &str, figures: &[Figure], mut to: impl Write) -> std::io::Result<()> {
    let head = [
        "figure", "median", "p99", "floor", "median", "p99", "ratio", "goal", "reached",
    ];
    let lines: Vec<[String; 9]> = figures.iter().map(Figure::cells).collect();
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; 9] = std::array::from_fn(width);
    let line = |cells: [&str; 9]| {
        let padded = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!(" {cell:<width$} |"));
        format!("|{}", padded.collect::<String>())
    };
    writeln!(to, "### {heading}\n\n{}", line(head))?;
    writeln!(
        to,
        "|{}",
        widths.map(|width| "-".repeat(width + 2) + "|").concat()
    )?;
    for cells in &lines {
        writeln!(to, "{}", line(cells.each_ref().map(String::as_str)))?;
    }
    writeln!(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_figure_its_floor_and_whether_the_goal_is_reached() {
        let figures = [
            Figure::new("call", Series::seconds(vec![2e-3, 2e-3, 4e-3]))
                .floor("echo", Series::seconds(vec![1e-3]))
                .goal_of_tail(3e-3),
            Figure::new(
                "memory",
                Series::new(crate::series::Unit::Mebibytes, vec![50.0]),
            )
            .goal(60.0),
        ];
        let mut written = Vec::new();
        write("both", &figures, &mut written).expect("memory takes it");
        let written = String::from_utf8(written).expect("it is text");
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!((lines.len(), lines[0]), (7, "### both"));
        for part in [
            "call",
            "2.00 ms",
            "4.00 ms",
            "echo",
            "1.00 ms",
            "p99 ≤ 3.00 ms",
            "NO",
        ] {
            assert!(lines[4].contains(part), "{part} in {}", lines[4]);
        }
        assert!(lines[5].contains("| yes"), "{}", lines[5]);
    }
}
