//! Tables for people: columns in line, and nothing a row holds can steer the terminal.

/// A cell longer than this is cut: the whole value is in `show` and in `--json`.
const CELL_CHARS_MAX: usize = 60;

/// Lines of equal columns under their names.
pub fn table<const N: usize>(names: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|it| cell(it))).collect();
    let mut widths = names.map(|name| name.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |cells: [&str; N]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(names);
    for row in &rows {
        text.push_str(&line(row.each_ref().map(String::as_str)));
    }
    text
}

/// `name  value` lines.
pub fn pairs(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let line = |(name, value): &(&str, String)| format!("{name:<width$}  {}\n", printable(value));
    rows.iter().map(line).collect()
}

fn cell(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Any service may write to the outbox, so a text may hold what a terminal obeys.
pub fn printable(text: &str) -> String {
    let escaped = |char: char| match char.is_control() {
        true => char.escape_default().to_string(),
        false => char.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_in_line_and_nothing_steers_the_terminal() {
        let rows = [["a".into(), "\u{1b}[2Jx".into()], ["long".into(), "y\nz".into()]];
        assert_eq!(table(["id", "what"], &rows), "id    what\na     \\u{1b}[2Jx\nlong  y\\nz\n");
    }

    #[test]
    fn a_long_cell_is_cut() {
        let rows = [["é".repeat(100)]];
        assert_eq!(table(["n"], &rows), format!("n\n{}…\n", "é".repeat(CELL_CHARS_MAX)));
    }
}
