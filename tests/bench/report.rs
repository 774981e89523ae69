//! What was measured: medians with their range, and each ratio beside its bar.

use anyhow::Result;
use serde::Serialize;

/// The values of one figure, one a round.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Series {
    /// # Panics
    /// Without a value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (values[0], values[values.len() - 1]);
        Self { median: values[values.len() / 2], min, max }
    }
}

/// On which side of its bar a figure should be.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Debug, Serialize)]
struct Line {
    bench: &'static str,
    figure: String,
    unit: &'static str,
    #[serde(flatten)]
    series: Series,
    #[serde(skip_serializing_if = "Option::is_none")]
    bar: Option<Bar>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reached: Option<bool>,
}

pub struct Report {
    json: bool,
    lines: Vec<Line>,
}

impl Report {
    pub fn new(json: bool) -> Self {
        Self { json, lines: Vec::new() }
    }

    /// A line of progress.
    #[expect(clippy::print_stderr, clippy::print_stdout, reason = "for whoever waits")]
    pub fn say(&self, text: &str) {
        if self.json {
            eprintln!("{text}");
        } else {
            println!("{text}");
        }
    }

    /// A figure that is only told.
    pub fn figure(
        &mut self,
        bench: &'static str,
        figure: impl Into<String>,
        unit: &'static str,
        series: Series,
    ) {
        self.note(Line { bench, figure: figure.into(), unit, series, bar: None, reached: None });
    }

    /// A figure that has a bar.
    pub fn against(
        &mut self,
        bench: &'static str,
        figure: impl Into<String>,
        unit: &'static str,
        series: Series,
        bar: Bar,
    ) {
        let reached = match bar {
            Bar::AtLeast(bar) => series.median >= bar,
            Bar::AtMost(bar) => series.median <= bar,
        };
        let (bar, reached) = (Some(bar), Some(reached));
        self.note(Line { bench, figure: figure.into(), unit, series, bar, reached });
    }

    fn note(&mut self, line: Line) {
        let Series { median, min, max } = line.series;
        let bar = match (line.bar, line.reached) {
            (Some(Bar::AtLeast(bar)), Some(true)) => format!("  ✓ bar ≥ {bar}"),
            (Some(Bar::AtLeast(bar)), _) => format!("  ✗ bar ≥ {bar}"),
            (Some(Bar::AtMost(bar)), Some(true)) => format!("  ✓ bar ≤ {bar}"),
            (Some(Bar::AtMost(bar)), _) => format!("  ✗ bar ≤ {bar}"),
            (None, _) => String::new(),
        };
        let (bench, figure, unit) = (line.bench, &line.figure, line.unit);
        self.say(&format!(
            "{bench:<4} {figure:<58} {median:>10.2} {unit} [{min:.2}–{max:.2}]{bar}"
        ));
        self.lines.push(line);
    }

    /// Prints the end; whether every bar was reached.
    #[expect(clippy::print_stdout, reason = "for scripts")]
    pub fn finish(self) -> Result<bool> {
        let bars = self.lines.iter().filter_map(|line| line.reached);
        let (all, reached) = (bars.clone().count(), bars.filter(|reached| *reached).count());
        if self.json {
            println!("{}", serde_json::to_string_pretty(&self.lines)?);
        }
        self.say(&format!("{reached} of {all} bars reached"));
        Ok(reached == all)
    }
}
