//! Horizontal stacked bars as inline SVG.

use std::fmt::Write;

use super::svg::{PARTS, escape, open};

const WIDTH: f64 = 1240.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 1230.0;
/// Height of a bar with the room below it.
const STEP: f64 = 34.0;
const BAR: f64 = 24.0;
/// Entries of the legend in one line.
const COLUMNS: usize = 5;

/// Bars of parts.
#[derive(Clone, Debug)]
pub struct StackedBars {
    /// Names of the parts, at most 20.
    pub parts: Vec<&'static str>,
    /// The name of each bar and the sizes of its parts, which add up to 100.
    pub bars: Vec<(String, Vec<f64>)>,
}

impl StackedBars {
    /// The bars as an `<svg>` element. Parts that no bar has are left out.
    pub fn svg(&self) -> String {
        let is_used = |part: &usize| self.bars.iter().any(|(_, sizes)| sizes[*part] > 0.0);
        let used: Vec<usize> = (0..self.parts.len()).filter(is_used).collect();
        let legend = STEP * self.bars.len() as f64 + 16.0;
        let height = legend + 18.0 * used.len().div_ceil(COLUMNS) as f64 + 6.0;
        let mut svg = open(WIDTH, height, "stacked bars");
        for (row, (name, sizes)) in self.bars.iter().enumerate() {
            let top = STEP * row as f64 + 4.0;
            // Writes to a `String` cannot fail, here and below.
            let _ = writeln!(
                svg,
                "<text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 8.0,
                top + BAR * 0.7,
                escape(name)
            );
            let mut start = LEFT;
            for &part in &used {
                let width = (RIGHT - LEFT) * sizes[part] / 100.0;
                let _ = writeln!(
                    svg,
                    "<rect class=\"gap\" x=\"{start:.2}\" y=\"{top:.1}\" \
                     width=\"{width:.2}\" height=\"{BAR}\" fill=\"{}\">\
                     <title>{}: {:.2} %</title></rect>",
                    PARTS[part % PARTS.len()],
                    escape(self.parts[part]),
                    sizes[part]
                );
                start += width;
            }
        }
        for (place, &part) in used.iter().enumerate() {
            let x = LEFT + (RIGHT - LEFT) / COLUMNS as f64 * (place % COLUMNS) as f64;
            let y = legend + 18.0 * (place / COLUMNS) as f64;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                PARTS[part % PARTS.len()],
                x + 17.0,
                y + 10.0,
                escape(self.parts[part])
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_bar_and_unused_ones_are_left_out() {
        let bars = vec![("one".to_owned(), vec![25.0, 0.0, 75.0])];
        let svg = StackedBars { parts: vec!["a<b", "none", "c"], bars }.svg();
        assert!(svg.contains("x=\"190.00\" y=\"4.0\" width=\"260.00\""), "{svg}");
        assert!(svg.contains("x=\"450.00\" y=\"4.0\" width=\"780.00\""), "{svg}");
        assert!(svg.contains("a&lt;b: 25.00 %") && !svg.contains("none"));
        // Two parts, and two entries of the legend.
        assert_eq!(svg.matches("<rect").count(), 4);
    }
}
