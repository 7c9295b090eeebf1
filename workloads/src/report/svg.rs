//! The `<svg>` element and the style of all drawings. A drawing is part of a page, or a file of its
//! own.

/// Colours of series, which most colour-blind readers can distinguish. Their lightness is such that
/// the contrast to a light and to a dark page is at least 3:1.
pub const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#00936b", "#c2649a", "#a67600", "#8a63d2"];

/// Colours of parts that lie side by side, with the same contrast; a line in the colour of the page
/// separates them.
pub(super) const PARTS: [&str; 20] = [
    "#0072b2", "#b07800", "#00936b", "#c2649a", "#3f8fc9", "#d55e00", "#808000", "#8a63d2",
    "#2f9a86", "#a06a1c", "#3d6fd1", "#c0830c", "#3a8f3e", "#d0417e", "#5c86b8", "#cf5f3a",
    "#7d7a22", "#9471c9", "#808080", "#6f6f8f",
];

/// Colours of a page and of the text and lines on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paper {
    pub page: &'static str,
    pub ink: &'static str,
    pub soft: &'static str,
    pub rule: &'static str,
}

/// For readers who prefer light pages.
pub(super) const LIGHT: Paper =
    Paper { page: "#ffffff", ink: "#1c1c1c", soft: "#666666", rule: "#dddddd" };
/// For readers who prefer dark ones.
pub(super) const DARK: Paper =
    Paper { page: "#161616", ink: "#e4e4e4", soft: "#999999", rule: "#383838" };

impl Paper {
    fn rules(self) -> String {
        let Paper { page, ink, soft, rule } = self;
        format!(
            ".drawing{{background:{page};color:{ink}}}.drawing .title,.drawing .ink{{fill:{ink}}}\
             .drawing .tick,.drawing .label{{fill:{soft}}}.drawing .grid{{stroke:{rule}}}\
             .drawing .axis{{stroke:{soft}}}.drawing .range{{stroke:{ink}}}\
             .drawing .gap{{stroke:{page}}}"
        )
    }
}

/// Text with the special characters of HTML escaped.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// The beginning of a drawing of this size; `</svg>` ends it.
pub(super) fn open(width: f64, height: f64, label: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"drawing\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n\
         <style>.drawing{{font:11px system-ui,sans-serif}}\
         .drawing .title{{font-size:14px;font-weight:600}}{}\
         @media (prefers-color-scheme:dark){{{}}}</style>\n",
        escape(label),
        LIGHT.rules(),
        DARK.rules()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance of a colour (WCAG 2.2).
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).expect("two digits");
            let value = f64::from(value) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
        one.max(other) / one.min(other)
    }

    #[test]
    fn everything_has_a_contrast_of_three_to_one_and_text_of_more() {
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
        for paper in [LIGHT, DARK] {
            for colour in COLOURS.iter().chain(&PARTS) {
                let found = contrast(colour, paper.page);
                assert!(found >= 3.0, "{colour} on {}: {found:.2}", paper.page);
            }
            for colour in [paper.ink, paper.soft] {
                let found = contrast(colour, paper.page);
                assert!(found >= 4.5, "{colour} on {}: {found:.2}", paper.page);
            }
        }
    }

    #[test]
    fn a_drawing_stands_alone() {
        let svg = open(640.0, 280.0, "a<b");
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{svg}");
        assert!(svg.contains("viewBox=\"0 0 640 280\"") && svg.contains("a&lt;b"), "{svg}");
        assert!(svg.contains("prefers-color-scheme:dark"), "{svg}");
    }
}
