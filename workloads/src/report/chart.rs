//! Charts for publication: lines and points with error bars on axes that fit them, and horizontal
//! bars of means. Each is one `<svg>` that fits half the width of a page, for light and dark.

use std::fmt::Write;

use super::fitted::{FittedAxis, Spacing};
use super::style::{STYLES, Style, css};
use super::svg::escape;

const WIDTH: f64 = 640.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 620.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 320.0;
/// Height of a row of the legend, and of a bar with the room below it.
const ROW: f64 = 18.0;
const BAR_ROW: f64 = 26.0;
/// Width of a letter at most.
const LETTER: f64 = 6.6;

/// A point with half of the length of its error bars; 0 is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Half of the horizontal error bar.
    pub x_half: f64,
    /// Half of the vertical one.
    pub y_half: f64,
    /// Text beside it.
    pub label: String,
}

/// A line, or points of one kind.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its style.
    pub style: Style,
    /// Its points, in the order in which a line joins them.
    pub points: Vec<Point>,
}

/// A chart of curves.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Its title.
    pub title: String,
    /// The horizontal axis.
    pub x_label: String,
    /// Its spacing.
    pub x_spacing: Spacing,
    /// The vertical axis, evenly spaced.
    pub y_label: String,
    /// Whether the vertical axis begins at 0.
    pub y_from_zero: bool,
    /// The curves, at most [`STYLES`].
    pub curves: Vec<Curve>,
}

/// A bar of [`MeanBars`].
#[derive(Clone, Debug)]
pub struct MeanBar {
    /// Its name.
    pub name: String,
    /// Its style.
    pub style: Style,
    /// Its length.
    pub value: f64,
    /// Half of its error bar; 0 is none.
    pub half: f64,
}

/// A chart of horizontal bars from 0, each with its value.
#[derive(Clone, Debug)]
pub struct MeanBars {
    /// Its title.
    pub title: String,
    /// The horizontal axis.
    pub x_label: String,
    /// The bars from top to bottom, at most [`STYLES`].
    pub bars: Vec<MeanBar>,
}

/// A finished chart.
#[derive(Clone, Debug)]
pub struct Drawing {
    title: String,
    height: f64,
    body: String,
}

impl Drawing {
    fn new(title: &str, height: f64) -> Self {
        let mut body = String::new();
        // Writes to a `String` cannot fail, here and below.
        let _ = writeln!(
            body,
            "<text x=\"{LEFT}\" y=\"18\" font-size=\"14\" font-weight=\"600\">{}</text>",
            escape(title)
        );
        Self { title: title.to_owned(), height, body }
    }

    fn element(&self, attributes: &str, head: &str) -> String {
        format!(
            "<svg{attributes} class=\"chart\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" \
             aria-label=\"{}\" fill=\"#1c1c1c\" font-family=\"system-ui, sans-serif\" \
             font-size=\"11\">\n{head}{}</svg>\n",
            self.height,
            escape(&self.title),
            self.body
        )
    }

    /// The element for an HTML page that has the style sheet [`css`].
    pub fn inline(&self) -> String {
        self.element("", "")
    }

    /// The contents of an SVG file of its own, with `caption` as its description.
    pub fn file(&self, caption: &str) -> String {
        let attributes = format!(
            " xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{}\"",
            self.height
        );
        let (title, caption) = (escape(&self.title), escape(caption));
        let head =
            format!("<title>{title}</title>\n<desc>{caption}</desc>\n<style>{}</style>\n", css());
        self.element(&attributes, &head)
    }

    /// A text; `anchor` is `start`, `middle` or `end`.
    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<text class=\"soft\" fill=\"#555\" x=\"{x:.1}\" y=\"{y:.1}\" \
             text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        );
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let colour = if class == "grid" { "#ddd" } else { "#666" };
        let _ = writeln!(
            self.body,
            "<line class=\"{class}\" stroke=\"{colour}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" \
             y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// Marks of a horizontal axis at the height `bottom`, with a grid up to `TOP`.
    fn x_axis(&mut self, axis: &FittedAxis, left: f64, bottom: f64, label: &str) {
        for (share, text) in &axis.ticks {
            let x = left + (RIGHT - left) * share;
            self.line("grid", (x, TOP), (x, bottom));
            self.text(x, bottom + 16.0, "middle", text);
        }
        self.line("axis", (left, bottom), (RIGHT, bottom));
        self.text((left + RIGHT) / 2.0, bottom + 34.0, "middle", label);
    }
}

impl Chart {
    /// The drawing.
    pub fn draw(&self) -> Drawing {
        let columns = self.legend_columns();
        let rows = self.curves.len().div_ceil(columns);
        let mut drawing = Drawing::new(&self.title, BOTTOM + 52.0 + ROW * rows as f64);
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let whole = |x: &Point| [x.x - x.x_half, x.x, x.x + x.x_half];
        let x = FittedAxis::new(self.x_spacing, false, points().flat_map(whole));
        let whole = |y: &Point| [y.y - y.y_half, y.y, y.y + y.y_half];
        let y = FittedAxis::new(Spacing::Even, self.y_from_zero, points().flat_map(whole));
        for (share, text) in &y.ticks {
            let at = BOTTOM - (BOTTOM - TOP) * share;
            drawing.line("grid", (LEFT, at), (RIGHT, at));
            drawing.text(LEFT - 6.0, at + 4.0, "end", text);
        }
        drawing.line("axis", (LEFT, TOP), (LEFT, BOTTOM));
        drawing.text(4.0, TOP - 8.0, "start", &self.y_label);
        drawing.x_axis(&x, LEFT, BOTTOM, &self.x_label);
        for curve in &self.curves {
            draw_curve(&mut drawing, curve, &x, &y);
        }
        for (index, curve) in self.curves.iter().enumerate() {
            let left = LEFT + (RIGHT - LEFT) / columns as f64 * (index % columns) as f64;
            let middle = BOTTOM + 56.0 + ROW * (index / columns) as f64;
            let _ = writeln!(
                drawing.body,
                "{}<path stroke=\"currentColor\" stroke-width=\"1.6\" d=\"M{left:.1} {middle}h22\
                 \"/><path fill=\"currentColor\" d=\"{}\"/></g>",
                curve.style.open(),
                curve.style.mark(left + 11.0, middle)
            );
            drawing.text(left + 28.0, middle + 4.0, "start", &curve.name);
        }
        drawing
    }

    /// Columns of the legend that have room for the longest name.
    fn legend_columns(&self) -> usize {
        let letters = self.curves.iter().map(|curve| curve.name.chars().count()).max();
        let width = 40.0 + LETTER * letters.unwrap_or(0) as f64;
        (((RIGHT - LEFT) / width) as usize).clamp(1, STYLES / 2)
    }
}

fn draw_curve(drawing: &mut Drawing, curve: &Curve, x: &FittedAxis, y: &FittedAxis) {
    let across = |value: f64| Some(LEFT + (RIGHT - LEFT) * x.share(value)?);
    let up = |value: f64| Some(BOTTOM - (BOTTOM - TOP) * y.share(value)?);
    let (mut line, mut bars, mut marks) = (String::new(), String::new(), String::new());
    let mut labels = Vec::new();
    for point in &curve.points {
        let (Some(at_x), Some(at_y)) = (across(point.x), up(point.y)) else { continue };
        let _ = write!(line, "{}{at_x:.1} {at_y:.1}", if line.is_empty() { 'M' } else { 'L' });
        marks += &curve.style.mark(at_x, at_y);
        if point.y_half > 0.0
            && let (Some(low), Some(high)) =
                (up(point.y - point.y_half), up(point.y + point.y_half))
        {
            let _ = write!(
                bars,
                "M{at_x:.1} {low:.1}V{high:.1}M{0:.1} {low:.1}h6M{0:.1} {high:.1}h6",
                at_x - 3.0
            );
        }
        if point.x_half > 0.0
            && let (Some(low), Some(high)) =
                (across(point.x - point.x_half), across(point.x + point.x_half))
        {
            let _ = write!(
                bars,
                "M{low:.1} {at_y:.1}H{high:.1}M{low:.1} {0:.1}v6M{high:.1} {0:.1}v6",
                at_y - 3.0
            );
        }
        if !point.label.is_empty() {
            labels.push((at_x + 5.0, at_y - 5.0, &point.label));
        }
    }
    let body = &mut drawing.body;
    let _ = writeln!(body, "{}<title>{}</title>", curve.style.open(), escape(&curve.name));
    if curve.points.len() > 1 {
        let _ = writeln!(
            body,
            "<path fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.6\" \
             stroke-linejoin=\"round\" d=\"{line}\"/>"
        );
    }
    if !bars.is_empty() {
        let _ = writeln!(body, "<path fill=\"none\" stroke=\"currentColor\" d=\"{bars}\"/>");
    }
    let _ = writeln!(body, "<path fill=\"currentColor\" d=\"{marks}\"/></g>");
    for (x, y, label) in labels {
        drawing.text(x, y, "start", label);
    }
}

impl MeanBars {
    /// The drawing. A bar without a finite value is left out, its name stays.
    pub fn draw(&self) -> Drawing {
        let letters = self.bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
        let left = (12.0 + LETTER * letters as f64).clamp(LEFT, RIGHT / 2.0);
        let bottom = TOP + BAR_ROW * self.bars.len() as f64;
        let mut drawing = Drawing::new(&self.title, bottom + 46.0);
        let ends = self.bars.iter().map(|bar| (bar.value + bar.half) * 1.12);
        let axis = FittedAxis::new(Spacing::Even, true, ends);
        drawing.x_axis(&axis, left, bottom, &self.x_label);
        for (index, bar) in self.bars.iter().enumerate() {
            let top = TOP + BAR_ROW * index as f64 + 4.0;
            let (height, middle) = (BAR_ROW - 8.0, top + (BAR_ROW - 8.0) / 2.0);
            drawing.text(left - 8.0, middle + 4.0, "end", &bar.name);
            let across = |value: f64| Some(left + (RIGHT - left) * axis.share(value)?);
            let Some(end) = across(bar.value) else { continue };
            let _ = writeln!(
                drawing.body,
                "{}<rect fill=\"currentColor\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
                 height=\"{height}\"><title>{}</title></rect></g>",
                bar.style.open(),
                (end - left).max(0.0),
                escape(&bar.name)
            );
            let mut after = end;
            if bar.half > 0.0
                && let (Some(low), Some(high)) =
                    (across(bar.value - bar.half), across(bar.value + bar.half))
            {
                drawing.line("axis", (low, middle), (high, middle));
                drawing.line("axis", (low, middle - 4.0), (low, middle + 4.0));
                drawing.line("axis", (high, middle - 4.0), (high, middle + 4.0));
                after = high;
            }
            drawing.text(after + 6.0, middle + 4.0, "start", &format!("{:.3}", bar.value));
        }
        drawing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)]) -> Chart {
        let point =
            |(x, y): &(f64, f64)| Point { x: *x, y: *y, y_half: 0.1 * y, ..Point::default() };
        let curve = |style: usize| Curve {
            name: format!("a<{style}"),
            style: Style(style),
            points: points.iter().map(point).collect(),
        };
        Chart {
            title: "T & U".to_owned(),
            x_label: "x".to_owned(),
            x_spacing: Spacing::ByRatio,
            y_label: "y".to_owned(),
            y_from_zero: false,
            curves: (0..STYLES).map(curve).collect(),
        }
    }

    #[test]
    fn a_chart_has_lines_error_bars_marks_and_a_legend() {
        let drawing = chart(&[(10.0, 5.0), (100.0, 7.0)]).draw();
        let svg = drawing.inline();
        // One group for a curve and one for its entry in the legend.
        for style in 0..STYLES {
            assert_eq!(svg.matches(&Style(style).open()).count(), 2, "{style}");
        }
        assert_eq!(svg.matches("<path fill=\"none\" stroke=\"currentColor\" d=").count(), STYLES);
        assert!(svg.contains(">a&lt;3</text>") && !svg.contains("http"));
        let file = drawing.file("caption <1>");
        for part in [
            "xmlns=\"http://www.w3.org/2000/svg\"",
            "<desc>caption &lt;1&gt;</desc>",
            "<title>T &amp; U</title>",
            "prefers-color-scheme: dark",
        ] {
            assert!(file.contains(part), "{part}");
        }
        assert!(file.len() < 16_000, "{}", file.len());
    }

    #[test]
    fn nothing_and_nonsense_draw_no_number_that_is_none() {
        for points in [&[][..], &[(0.0, 1.0)], &[(1.0, f64::NAN)], &[(f64::INFINITY, 0.0)]] {
            let svg = chart(points).draw().inline();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        let bar = |value| MeanBar { name: "b".to_owned(), style: Style(0), value, half: 0.0 };
        let bars = [f64::NAN, 0.0].map(bar).to_vec();
        let (title, x_label) = ("T".to_owned(), "x".to_owned());
        let svg = MeanBars { title, x_label, bars }.draw().inline();
        assert!(!svg.contains("NaN") && svg.matches("<rect").count() == 1, "{svg}");
    }

    #[test]
    fn bars_begin_at_zero_and_are_as_long_as_their_values() {
        let bar = |value: f64, half| MeanBar { name: "b".to_owned(), style: Style(1), value, half };
        let (title, x_label) = ("T".to_owned(), "x".to_owned());
        let svg = MeanBars { title, x_label, bars: vec![bar(1.0, 0.25), bar(0.5, 0.0)] }.draw();
        let widths: Vec<f64> = svg
            .inline()
            .split("<rect")
            .skip(1)
            .map(|text| text.split("width=\"").nth(1).unwrap().split('"').next().unwrap())
            .map(|text| text.parse().unwrap())
            .collect();
        assert!((widths[0] / widths[1] - 2.0).abs() < 0.01, "{widths:?}");
        assert!(svg.inline().contains(">1.000</text>"));
        // An error bar has three strokes.
        assert_eq!(svg.inline().matches("class=\"axis\"").count(), 4);
    }
}
