//! Numbered figures and tables with captions: one HTML page, and each as a file of its own, an SVG
//! or a CSV. `index.csv` names the files with their captions.

use std::fmt::Write;
use std::io;
use std::path::Path;

use super::chart::Drawing;
use super::figures::csv_field;
use super::html::Page;
use super::svg::escape;

/// A cell of a table: as people read it, and in full.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    shown: String,
    full: String,
}

impl Cell {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self { shown: text.to_owned(), full: text.to_owned() }
    }

    /// A number; one that is not finite is an empty cell.
    pub fn number(value: f64, shown: String) -> Self {
        match value.is_finite() {
            true => Self { shown, full: value.to_string() },
            false => Self::default(),
        }
    }
}

/// Figures and tables in order.
pub struct Document {
    page: Page,
    /// Name, caption and contents of each file.
    files: Vec<(String, String, String)>,
    figures: usize,
    tables: usize,
}

impl Document {
    /// An empty document.
    pub fn new(title: &str) -> Self {
        Self { page: Page::new(title), files: Vec::new(), figures: 0, tables: 0 }
    }

    /// Adds pairs of a name and a value.
    pub fn facts(&mut self, facts: &[(&str, String)]) {
        self.page.facts(facts);
    }

    /// Adds a heading.
    pub fn heading(&mut self, heading: &str) {
        self.page.heading(heading);
    }

    /// Adds figures beside each other, each with the end of the name of its file and its caption.
    pub fn figures(&mut self, figures: &[(String, Drawing, String)]) {
        let mut html = String::new();
        for (name, drawing, caption) in figures {
            self.figures += 1;
            let caption = format!("Figure {}. {caption}", self.figures);
            // Writing to a `String` cannot fail.
            let _ = writeln!(
                html,
                "<figure>{}<figcaption>{}</figcaption></figure>",
                drawing.inline(),
                escape(&caption)
            );
            let name = format!("figure-{:03}-{}.svg", self.figures, file_name(name));
            let contents = drawing.file(&caption);
            self.files.push((name, caption, contents));
        }
        if !figures.is_empty() {
            self.page.element("div class=\"plots\"", &html);
        }
    }

    /// Adds a table with the end of the name of its file and its caption.
    pub fn table(&mut self, name: &str, caption: &str, columns: &[&str], rows: &[Vec<Cell>]) {
        self.tables += 1;
        let caption = format!("Table {}. {caption}", self.tables);
        let line = |fields: Vec<String>| fields.join(",") + "\n";
        let mut csv = line(columns.iter().map(|column| csv_field(column)).collect());
        for row in rows {
            csv += &line(row.iter().map(|cell| csv_field(&cell.full)).collect());
        }
        let shown = |row: &Vec<Cell>| row.iter().map(|cell| cell.shown.clone()).collect();
        let shown: Vec<Vec<String>> = rows.iter().map(shown).collect();
        self.page.captioned_table(&caption, columns, &shown);
        let name = format!("table-{:03}-{}.csv", self.tables, file_name(name));
        self.files.push((name, caption, csv));
    }

    /// The page.
    pub fn html(self) -> String {
        self.page.finish()
    }

    /// Writes each figure and table, and the index, into `folder`, which is created if it is
    /// absent. Files of the same names are replaced.
    ///
    /// # Errors
    /// The first error of the file system.
    pub fn write_files(&self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut index = String::from("file,caption\n");
        for (name, caption, contents) in &self.files {
            index += &format!("{},{}\n", csv_field(name), csv_field(caption));
            std::fs::write(folder.join(name), contents)?;
        }
        std::fs::write(folder.join("index.csv"), index)
    }
}

/// Letters, digits, points and dashes of `name`, at most 80; others become dashes.
fn file_name(name: &str) -> String {
    let plain = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' => letter,
        _ => '-',
    };
    name.chars().map(plain).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::chart::MeanBars;

    #[test]
    fn every_figure_and_table_is_in_the_page_and_a_file() {
        let bars = MeanBars { title: "T".to_owned(), x_label: "x".to_owned(), bars: Vec::new() };
        let mut document = Document::new("t");
        document.facts(&[("seed", "1".to_owned())]);
        document.heading("part");
        document.figures(&[("a/b".to_owned(), bars.draw(), "of <a>".to_owned())]);
        let number = Cell::number(1234.5, "1,235".to_owned());
        let rows = [vec![Cell::text("a,b"), number], vec![Cell::number(f64::NAN, String::new())]];
        document.table("c", "of c", &["name", "value"], &rows);
        let folder = tempfile::tempdir().unwrap();
        document.write_files(&folder.path().join("new")).unwrap();
        let read =
            |name: &str| std::fs::read_to_string(folder.path().join("new").join(name)).unwrap();
        assert!(read("figure-001-a-b.svg").contains("<desc>Figure 1. of &lt;a&gt;</desc>"));
        assert_eq!(read("table-001-c.csv"), "name,value\n\"a,b\",1234.5\n\n");
        assert_eq!(
            read("index.csv"),
            "file,caption\nfigure-001-a-b.svg,Figure 1. of <a>\ntable-001-c.csv,Table 1. of c\n"
        );
        let html = document.html();
        for part in ["<figcaption>Figure 1. of &lt;a&gt;", "Table 1. of c", "<td>1,235</td>"] {
            assert!(html.contains(part), "{part}");
        }
    }
}
