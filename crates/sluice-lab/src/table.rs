//! Tables for people, the same in the terminal and as Markdown.

use std::fmt::Write as _;

/// A Markdown table with columns padded to one width, so that it reads in a terminal too.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count(), 2]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let mut line = String::from("|");
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - cell.chars().count());
            let (left, right) = if column == 0 { ("", padding.as_str()) } else { (padding.as_str(), "") };
            let _ = write!(line, " {left}{cell}{right} |");
        }
        line + "\n"
    };
    let mut text = line(head.to_vec());
    text.push('|');
    for (column, width) in widths.iter().enumerate() {
        let dashes = "-".repeat(width + 1);
        let _ = if column == 0 { write!(text, "{dashes}-|") } else { write!(text, "{dashes}:|") };
    }
    text.push('\n');
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

/// A figure with three significant digits or so; a dash for none.
pub fn show(figure: Option<f64>) -> String {
    match figure {
        None => "–".to_owned(),
        Some(figure) if figure.abs() >= 100.0 => format!("{figure:.0}"),
        Some(figure) if figure.abs() >= 10.0 => format!("{figure:.1}"),
        Some(figure) if figure.abs() >= 1.0 => format!("{figure:.2}"),
        Some(figure) => format!("{figure:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align() {
        let text = table(&["target", "µs"], &[vec!["a".to_owned(), "12345".to_owned()]]);
        assert_eq!(text, "| target |    µs |\n|--------|------:|\n| a      | 12345 |\n");
    }

    #[test]
    fn figures_keep_three_digits() {
        let shown = [30_123.4, 12.345, 2.125, 0.0714].map(|figure| show(Some(figure)));
        assert_eq!(shown, ["30123", "12.3", "2.12", "0.071"]);
        assert_eq!(show(None), "–");
    }
}
