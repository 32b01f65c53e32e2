//! Tables and texts for people.

pub use crate::printable::printable;

/// Lines with aligned columns, the header first.
pub fn lines(header: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let all = || std::iter::once(&header).chain(&rows);
    let width =
        |column: usize| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..header.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_terminals_are_safe() {
        let rows =
            vec![vec!["a".to_owned(), "x\u{1b}[31m".to_owned()], vec!["bbb".to_owned(), "y".to_owned()]];
        assert_eq!(lines(&["ID", "WHAT"], &rows), ["ID   WHAT", "a    x\\u{1b}[31m", "bbb  y"]);
    }
}
