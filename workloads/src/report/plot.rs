//! Line plots as inline SVG.

use std::fmt::Write;

use super::figures::significant;
use super::svg::{COLOURS, escape, open};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 608.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 236.0;
/// Height of a row of the legend.
const LEGEND_ROW: f64 = 18.0;

/// A line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, with ascending x.
    pub points: Vec<(f64, f64)>,
    /// Error bars: x, and the lowest and highest y of the repetitions there.
    pub ranges: Vec<(f64, f64, f64)>,
}

impl Series {
    /// A line without repetitions.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, ranges: Vec::new() }
    }
}

/// How a value becomes a position along an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Proportional, from 0.
    Linear,
    /// By the logarithm; values that are not positive are left out.
    Logarithmic,
    /// By the number of nines of a quantile: 0.9 is 1, 0.99 is 2.
    Nines,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its title.
    pub title: String,
    /// The horizontal axis.
    pub x_label: &'static str,
    /// Its scale.
    pub x_scale: Scale,
    /// The vertical axis.
    pub y_label: &'static str,
    /// Its scale.
    pub y_scale: Scale,
    /// The lines.
    pub series: Vec<Series>,
}

/// An axis: its scale, the range of positions that it covers, and its marks.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

/// The end of an axis.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// At the last value.
    Value,
    /// At the first mark that is not below the last value.
    Mark,
}

impl Scale {
    /// The position of a value on the axis; `None` if the scale has none for it.
    fn position(&self, value: f64) -> Option<f64> {
        match self {
            Scale::Linear => Some(value),
            Scale::Logarithmic => (value > 0.0).then(|| value.log10()),
            Scale::Nines => (value < 1.0).then(|| -(1.0 - value).log10()),
        }
        .filter(|position| position.is_finite())
    }

    /// The label of a mark.
    fn label(&self, position: f64) -> String {
        match self {
            Scale::Linear => plain(position),
            Scale::Logarithmic => plain(10f64.powf(position)),
            Scale::Nines => match position as usize {
                0 => "0 %".to_owned(),
                1 => "90 %".to_owned(),
                2 => "99 %".to_owned(),
                nines => format!("99.{} %", "9".repeat(nines - 2)),
            },
        }
    }
}

impl Axis {
    /// An axis that has room for all `values`.
    fn new(scale: Scale, end: End, values: impl Iterator<Item = f64>) -> Self {
        let positions = values.filter_map(|value| scale.position(value));
        let (mut low, mut high) = positions
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), position| {
                (low.min(position), high.max(position))
            });
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let step = match scale {
            Scale::Linear => round_step((high - low.min(0.0)) / 5.0),
            Scale::Logarithmic | Scale::Nines => 1.0,
        };
        low = match scale {
            Scale::Linear | Scale::Nines => low.min(0.0),
            Scale::Logarithmic => low.floor(),
        };
        // Slightly less than the last value, so that rounding does not add a mark.
        let last_mark = low + ((high - low) / step - 1e-9).ceil().max(1.0) * step;
        if end == End::Mark || high <= low {
            high = last_mark;
        }
        let marks = ((high - low) / step + 1e-9) as usize;
        let ticks = (0..=marks).map(|mark| low + mark as f64 * step);
        let ticks = ticks.map(|position| (position, scale.label(position))).collect();
        Self { scale, low, high, ticks }
    }

    /// The position of `value`, from 0 (low end) to 1 (high end).
    fn share(&self, value: f64) -> Option<f64> {
        Some((self.scale.position(value)? - self.low) / (self.high - self.low))
    }
}

/// A round number without trailing zeros.
fn plain(value: f64) -> String {
    if value.abs() >= 1000.0 {
        return significant(value);
    }
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least `step`.
fn round_step(step: f64) -> f64 {
    if step <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * power);
    steps.into_iter().find(|round| *round >= step * 0.999_999).unwrap_or(power * 10.0)
}

impl Plot {
    /// The plot as an `<svg>` element.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = Axis::new(self.x_scale.clone(), End::Value, points().map(|point| point.0));
        let ranges = self.series.iter().flat_map(|series| &series.ranges);
        let ends = ranges.flat_map(|(_, low, high)| [*low, *high]);
        let y = points().map(|point| point.1).chain(ends);
        let y = Axis::new(self.y_scale.clone(), End::Mark, y);
        let more_rows = self.legend_rows().len().max(1) - 1;
        let mut svg = open(WIDTH, HEIGHT + LEGEND_ROW * more_rows as f64, &self.title);
        let _ = writeln!(
            svg,
            "<text class=\"title\" x=\"{LEFT}\" y=\"18\">{}</text>",
            escape(&self.title)
        );
        self.draw_axes(&mut svg, &x, &y);
        self.draw_legend(&mut svg);
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            draw_ranges(&mut svg, series, colour, &x, &y);
            draw_line(&mut svg, series, colour, &x, &y);
        }
        svg.push_str("</svg>\n");
        svg
    }

    // Writes to a `String` cannot fail, here and below.
    fn draw_axes(&self, svg: &mut String, x: &Axis, y: &Axis) {
        for (position, label) in &y.ticks {
            let at = BOTTOM - (BOTTOM - TOP) * (position - y.low) / (y.high - y.low);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
                LEFT - 6.0,
                at + 4.0
            );
        }
        for (position, label) in &x.ticks {
            let at = LEFT + (RIGHT - LEFT) * (position - x.low) / (x.high - x.low);
            let _ = writeln!(
                svg,
                "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{BOTTOM}\" y2=\"{:.1}\"/>\
                 <text class=\"tick\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{label}\
                 </text>",
                BOTTOM + 4.0,
                BOTTOM + 16.0
            );
        }
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\"/>\n\
             <text class=\"label\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n\
             <text class=\"label\" x=\"4\" y=\"{:.1}\">{}</text>\n",
            (LEFT + RIGHT) / 2.0,
            HEIGHT - 8.0,
            escape(self.x_label),
            TOP - 14.0,
            escape(self.y_label)
        );
    }

    /// Indexes of the lines by row of the legend: as many in a row as fit.
    fn legend_rows(&self) -> Vec<Vec<usize>> {
        let mut rows: Vec<Vec<usize>> = Vec::new();
        let mut left = 0.0;
        for (index, series) in self.series.iter().enumerate() {
            let width = legend_width(&series.name);
            match rows.last_mut() {
                Some(row) if width <= left => row.push(index),
                _ => {
                    rows.push(vec![index]);
                    left = RIGHT - LEFT;
                }
            }
            left -= width;
        }
        rows
    }

    /// Names of the lines, if there are several: the first row at the top right, others below the
    /// plot.
    fn draw_legend(&self, svg: &mut String) {
        if self.series.len() < 2 {
            return;
        }
        for (number, row) in self.legend_rows().iter().enumerate() {
            let y = if number == 0 { 34.0 } else { HEIGHT + LEGEND_ROW * number as f64 - 10.0 };
            let mut right = RIGHT;
            // From right to left, so the last line comes first.
            for index in row.iter().rev() {
                let (series, colour) = (&self.series[*index], COLOURS[index % COLOURS.len()]);
                right -= legend_width(&series.name);
                let _ = writeln!(
                    svg,
                    "<line x1=\"{right:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\" \
                     stroke=\"{colour}\" stroke-width=\"3\"/>\
                     <text class=\"tick\" x=\"{:.1}\" y=\"{}\">{}</text>",
                    right + 14.0,
                    right + 18.0,
                    y + 4.0,
                    escape(&series.name)
                );
            }
        }
    }
}

/// Width of a name in the legend with its line.
fn legend_width(name: &str) -> f64 {
    7.0 * name.chars().count() as f64 + 26.0
}

/// Error bars, with a cap at each end.
fn draw_ranges(svg: &mut String, series: &Series, colour: &str, x: &Axis, y: &Axis) {
    for (at, low, high) in &series.ranges {
        let (Some(at), Some(low), Some(high)) = (x.share(*at), y.share(*low), y.share(*high))
        else {
            continue;
        };
        let at = LEFT + (RIGHT - LEFT) * at;
        let [low, high] = [low, high].map(|share| BOTTOM - (BOTTOM - TOP) * share);
        let (left, right) = (at - 3.0, at + 3.0);
        let _ = writeln!(
            svg,
            "<path class=\"error\" stroke=\"{colour}\" stroke-width=\"1.2\" fill=\"none\" \
             d=\"M{at:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}H{right:.1}\
             M{left:.1} {high:.1}H{right:.1}\"/>"
        );
    }
}

fn draw_line(svg: &mut String, series: &Series, colour: &str, x: &Axis, y: &Axis) {
    let place = |(horizontal, vertical): &(f64, f64)| {
        let (across, up) = (x.share(*horizontal)?, y.share(*vertical)?);
        Some((LEFT + (RIGHT - LEFT) * across, BOTTOM - (BOTTOM - TOP) * up))
    };
    let places: Vec<(f64, f64)> = series.points.iter().filter_map(place).collect();
    let text: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        svg,
        "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" \
         stroke-linejoin=\"round\" points=\"{}\"/>",
        text.join(" ")
    );
    // Few points get marks; a single point is no line.
    if places.len() <= 40 {
        for (x, y) in places {
            let _ =
                writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.4\" fill=\"{colour}\"/>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>, x_scale: Scale, y_scale: Scale) -> String {
        let series = vec![Series::new("a<b", points.clone()); 2];
        Plot { title: "T".to_owned(), x_label: "x", x_scale, y_label: "y", y_scale, series }.svg()
    }

    #[test]
    fn ends_of_a_line_meet_ends_of_the_axes() {
        let svg = plot(vec![(0.0, 0.0), (10.0, 50.0)], Scale::Linear, Scale::Linear);
        assert!(svg.contains("points=\"72.0,236.0 608.0,52.0\""), "{svg}");
        assert!(svg.contains("a&lt;b") && svg.matches("<polyline").count() == 2);
    }

    #[test]
    fn a_long_legend_goes_on_below_the_plot() {
        let series = |name: &str| Series::new(name.repeat(20), vec![(0.0, 1.0)]);
        let mut plot = Plot {
            title: "T".to_owned(),
            x_label: "x",
            x_scale: Scale::Linear,
            y_label: "y",
            y_scale: Scale::Linear,
            series: ["a", "b", "c", "d", "e", "f"].map(series).to_vec(),
        };
        assert_eq!(plot.legend_rows(), [[0, 1, 2], [3, 4, 5]]);
        assert!(plot.svg().contains("viewBox=\"0 0 640 298\""));
        plot.series.truncate(2);
        assert!(plot.svg().contains("viewBox=\"0 0 640 280\""));
    }

    #[test]
    fn logarithms_and_nines_are_marked_by_powers() {
        let svg = plot(vec![(0.5, 2.0), (0.999, 900.0)], Scale::Nines, Scale::Logarithmic);
        for mark in [">0 %<", ">90 %<", ">99 %<", ">99.9 %<", ">1<", ">1,000<"] {
            assert!(svg.contains(mark), "{mark} is not in {svg}");
        }
    }

    #[test]
    fn nothing_and_nonsense_give_an_empty_plot() {
        for points in [vec![], vec![(f64::NAN, 1.0)], vec![(1.0, f64::INFINITY)]] {
            let svg = plot(points, Scale::Linear, Scale::Logarithmic);
            assert!(svg.contains("points=\"\"") && !svg.contains("NaN") && !svg.contains("inf"));
        }
    }

    #[test]
    fn repetitions_have_error_bars_inside_of_the_axes() {
        let mut series = Series::new("a", vec![(0.0, 50.0), (10.0, 50.0)]);
        series.ranges = vec![(10.0, 0.0, 100.0)];
        let plot = Plot {
            title: "T".to_owned(),
            x_label: "x",
            x_scale: Scale::Linear,
            y_label: "y",
            y_scale: Scale::Linear,
            series: vec![series],
        };
        let svg = plot.svg();
        assert_eq!(svg.matches("class=\"error\"").count(), 1, "{svg}");
        assert!(svg.contains("d=\"M608.0 236.0V52.0M605.0 236.0H611.0"), "{svg}");
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([0.9, 1.0, 1.1, 3.0, 70.0].map(round_step), [1.0, 1.0, 2.0, 5.0, 100.0]);
    }
}
