//! Grouped bars as inline SVG.

use std::fmt::Write;

use super::figures::significant;
use super::svg::{COLOURS, escape, open};

const WIDTH: f64 = 640.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 608.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 236.0;
/// Space from the bottom axis to the first row of the legend, and height of a row.
const LEGEND: f64 = 40.0;
const ROW: f64 = 18.0;
/// Share of the width of a group that is left empty.
const GAP: f64 = 0.15;
/// Lines of the grid.
const LINES: usize = 5;

/// One bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Its height.
    pub value: f64,
    /// The range of the values that it stands for.
    pub range: (f64, f64),
    /// A value to compare with, drawn as a mark.
    pub mark: Option<f64>,
}

/// A chart of bars in groups. In each group there is at most one bar for each series.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Its title.
    pub title: String,
    /// The vertical axis.
    pub y_label: String,
    /// Names of the series, for the legend.
    pub series: Vec<String>,
    /// Groups: the name, and the bars by series.
    pub groups: Vec<(String, Vec<Option<Bar>>)>,
}

impl Bars {
    fn all(&self) -> impl Iterator<Item = &Bar> {
        self.groups.iter().flat_map(|(_, bars)| bars.iter().flatten())
    }

    /// The chart as an `<svg>` element. Writes to a `String` cannot fail, here and below.
    pub fn svg(&self) -> String {
        let ends = self.all().map(|bar| bar.value.max(bar.range.1).max(bar.mark.unwrap_or(0.0)));
        let top = ends.filter(|end| end.is_finite()).fold(0.0, f64::max);
        let top = if top > 0.0 { top * 1.05 } else { 1.0 };
        let up = |value: f64| BOTTOM - (BOTTOM - TOP) * (value / top).clamp(0.0, 1.0);
        let (legend, rows) = self.legend();
        let mut svg = open(WIDTH, BOTTOM + LEGEND + ROW * rows as f64, &self.title);
        let _ = writeln!(
            svg,
            "<text class=\"title\" x=\"{LEFT}\" y=\"18\">{}</text>\n\
             <text class=\"label\" x=\"4\" y=\"{}\">{}</text>",
            escape(&self.title),
            TOP - 10.0,
            escape(&self.y_label)
        );
        for line in 0..=LINES {
            let value = top * line as f64 / LINES as f64;
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>\
                 <text class=\"tick\" text-anchor=\"end\" x=\"{1}\" y=\"{2:.1}\">{3}</text>",
                up(value),
                LEFT - 6.0,
                up(value) + 4.0,
                significant(value)
            );
        }
        let width = (RIGHT - LEFT) / self.groups.len().max(1) as f64;
        for (index, (name, bars)) in self.groups.iter().enumerate() {
            let left = LEFT + width * index as f64;
            let _ = writeln!(
                svg,
                "<text class=\"label\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                left + width / 2.0,
                BOTTOM + 16.0,
                escape(name)
            );
            let step = width * (1.0 - GAP) / bars.len().max(1) as f64;
            for (place, bar) in bars.iter().enumerate() {
                let x = left + width * GAP / 2.0 + step * place as f64;
                if let Some(bar) = bar.filter(|bar| bar.value.is_finite()) {
                    draw(&mut svg, &bar, x, step, COLOURS[place % COLOURS.len()], &up);
                }
            }
        }
        svg + &legend + "</svg>\n"
    }

    /// The legend, and the number of its rows.
    fn legend(&self) -> (String, usize) {
        let (mut svg, mut x, mut row) = (String::new(), LEFT, 0);
        let marked = self.all().any(|bar| bar.mark.is_some());
        let named = self.series.iter().enumerate();
        let mut names: Vec<_> =
            named.map(|(index, name)| (name.as_str(), COLOURS[index % COLOURS.len()])).collect();
        if marked {
            names.push(("by the paper's ratio", "currentColor"));
        }
        for (name, colour) in names {
            let width = 7.0 * name.chars().count() as f64 + 26.0;
            if x + width > RIGHT && x > LEFT {
                (x, row) = (LEFT, row + 1);
            }
            let y = BOTTOM + LEGEND + ROW * row as f64;
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\" stroke=\"{colour}\" \
                 stroke-width=\"3\"/><text class=\"tick\" x=\"{:.1}\" y=\"{}\">{}</text>",
                x + 14.0,
                x + 18.0,
                y + 4.0,
                escape(name)
            );
            x += width;
        }
        (svg, row + 1)
    }
}

fn draw(svg: &mut String, bar: &Bar, x: f64, step: f64, colour: &str, up: &dyn Fn(f64) -> f64) {
    let (y, middle) = (up(bar.value), x + step / 2.0);
    let _ = write!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
        (step - 1.0).max(1.0),
        BOTTOM - y,
    );
    let (low, high) = bar.range;
    if low < high {
        // In the colour of the page below that of the text, to be seen on bars of every colour.
        let (low, high) = (up(low), up(high));
        let cap = (step / 4.0).min(4.0);
        let (left, right) = (middle - cap, middle + cap);
        let path = format!(
            "M{middle:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}H{right:.1}M{left:.1} {high:.1}\
             H{right:.1}"
        );
        let _ = write!(
            svg,
            "<path class=\"gap\" stroke-width=\"3.5\" fill=\"none\" d=\"{path}\"/>\
             <path class=\"range\" stroke-width=\"1.4\" fill=\"none\" d=\"{path}\"/>"
        );
    }
    if let Some(mark) = bar.mark {
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"currentColor\" \
             stroke-width=\"2.5\"/>",
            x + step,
            up(mark)
        );
    }
    svg.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_heights_marks_and_legends() {
        let bar = |value: f64| Some(Bar { value, range: (value, value), mark: None });
        let marked = Some(Bar { value: 10.0, range: (8.0, 12.0), mark: Some(20.0) });
        let mut bars = Bars {
            title: "T".to_owned(),
            y_label: "y".to_owned(),
            series: ["watt", "a<b"].map(str::to_owned).to_vec(),
            groups: vec![
                ("one".to_owned(), vec![bar(20.0), marked]),
                ("two".to_owned(), vec![None, bar(f64::NAN)]),
            ],
        };
        let svg = bars.svg();
        assert_eq!(svg.matches("<rect").count(), 2, "{svg}");
        assert_eq!(svg.matches("class=\"range\"").count(), 1, "only one has repetitions: {svg}");
        assert!(svg.contains("a&lt;b") && svg.contains("by the paper"), "{svg}");
        let height = (BOTTOM - TOP) / 1.05;
        assert!(svg.contains(&format!("height=\"{height:.1}\"")), "{svg}");
        assert!(svg.contains(&format!("height=\"{:.1}\"", height / 2.0)), "{svg}");
        bars.groups.clear();
        assert!(!bars.svg().contains("NaN") && !bars.svg().contains("inf"));
    }
}
