//! Eight styles for the lines of a chart: a colour on a light and on a dark page, and a mark.
//!
//! Colours are presentation attributes, so that a drawing also has them in programs that ignore
//! style sheets; `css` replaces them on a dark screen. Most colour-blind readers can distinguish
//! them (Okabe and Ito, 2008), and in print the marks do.

use std::fmt::Write;

/// Number of styles; a chart has at most as many lines.
pub const STYLES: usize = 8;

/// Colours on a light and on a dark page.
const COLOURS: [[&str; 2]; STYLES] = [
    ["#0072b2", "#4fa8e0"],
    ["#d55e00", "#ff8a3d"],
    ["#009e73", "#2fc79b"],
    ["#b0478a", "#e08cc0"],
    ["#b07d00", "#e6b422"],
    ["#3f3f3f", "#d0d0d0"],
    ["#8c564b", "#d3a69b"],
    ["#7a4ea3", "#b895de"],
];

/// Half of the size of a mark.
const HALF: f64 = 3.2;

/// One of the styles; numbers beyond the last start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style(pub usize);

impl Style {
    /// The opening tag of a group in the colour of the style.
    pub fn open(self) -> String {
        let number = self.0 % STYLES;
        format!("<g class=\"s{number}\" color=\"{}\">", COLOURS[number][0])
    }

    /// The commands of a path for the mark of the style at a place. Marks are closed, so a fill
    /// shows them.
    pub fn mark(self, x: f64, y: f64) -> String {
        let (h, t) = (HALF, HALF / 2.5);
        let corners: &[(f64, f64)] = match self.0 % STYLES {
            0 => {
                return format!(
                    "M{:.1} {y:.1}a{h} {h} 0 1 0 {d} 0a{h} {h} 0 1 0 -{d} 0z",
                    x - h,
                    d = 2.0 * h
                );
            }
            1 => &[(-h, -h), (h, -h), (h, h), (-h, h)],
            2 => &[(0.0, -h * 1.2), (h * 1.2, h), (-h * 1.2, h)],
            3 => &[(0.0, -h * 1.3), (h * 1.3, 0.0), (0.0, h * 1.3), (-h * 1.3, 0.0)],
            4 => &[(0.0, h * 1.2), (h * 1.2, -h), (-h * 1.2, -h)],
            5 => &[
                (-t, -h - t),
                (t, -h - t),
                (t, -t),
                (h + t, -t),
                (h + t, t),
                (t, t),
                (t, h + t),
                (-t, h + t),
                (-t, t),
                (-h - t, t),
                (-h - t, -t),
                (-t, -t),
            ],
            6 => &[(-h, -h), (h, h), (h, -h), (-h, h)],
            _ => &[(-h * 1.4, -t), (h * 1.4, -t), (h * 1.4, t), (-h * 1.4, t)],
        };
        let at = |(dx, dy): &(f64, f64)| format!("{:.1} {:.1}", x + dx, y + dy);
        let corners: Vec<String> = corners.iter().map(at).collect();
        format!("M{}z", corners.join("L"))
    }
}

/// The style sheet of charts: on a dark screen the colours of each style, and those of text and
/// axes.
pub fn css() -> String {
    let mut text = String::from(
        "@media screen and (prefers-color-scheme: dark) {\n\
         svg.chart { fill: #e4e4e4; }\n\
         svg.chart .grid { stroke: #383838; } svg.chart .axis { stroke: #999; }\n\
         svg.chart .soft { fill: #aaa; }\n",
    );
    for (number, [_, dark]) in COLOURS.iter().enumerate() {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "svg.chart .s{number} {{ color: {dark}; }}");
    }
    text + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_style_has_its_own_mark_and_colours() {
        let marks: Vec<String> = (0..STYLES).map(|style| Style(style).mark(10.0, 20.0)).collect();
        for (index, mark) in marks.iter().enumerate() {
            assert!(mark.starts_with('M') && mark.ends_with('z'), "{mark}");
            assert!(marks[..index].iter().all(|other| other != mark));
            assert!(css().contains(&format!(".s{index} {{ color: {}", COLOURS[index][1])));
            let same = |other: &[&str; 2]| (0..2).any(|page| other[page] == COLOURS[index][page]);
            assert!(!COLOURS[..index].iter().any(same));
        }
        assert_eq!(Style(STYLES).open(), Style(0).open());
    }
}
