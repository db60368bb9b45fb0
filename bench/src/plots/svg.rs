//! Bars in an SVG: no outside fonts, and colours that can be read on light and on dark pages.
#![allow(clippy::cast_precision_loss)] // Bars and letters are few.

use std::fmt::Write as _;

/// What bars are long by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// From 1, to the right and to the left, by logarithm: twice as much is as long as half as much.
    Ratio,
    /// From nothing to the limit.
    Share,
}

#[derive(Debug, Clone)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: f64,
    pub(super) limit: Option<f64>,
    pub(super) more_is_better: bool,
    pub(super) is_met: Option<bool>,
    /// The value in words.
    pub(super) figure: String,
    /// The limit in words, behind it.
    pub(super) asked: String,
}

const WIDTH: f64 = 900.0;
/// Where bars may be; labels stand to the left, figures to the right.
pub(super) const LEFT: f64 = 330.0;
const RIGHT: f64 = 700.0;
const TOP: f64 = 62.0;
const STEP: f64 = 26.0;
const THICK: f64 = 14.0;

/// Okabe and Ito's, which everybody tells apart; all of them stand out from white and from black.
const GOOD: &str = "#009e73";
const BAD: &str = "#d55e00";
const OTHER: &str = "#7f8c9a";

pub(super) fn draw(title: &str, scale: Scale, bars: &[Bar]) -> String {
    let height = TOP + STEP * bars.len() as f64 + 44.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{title}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <style>text{{fill:#1f2328}}.quiet{{fill:#59636e}}.line{{stroke:#59636e}}\
         @media (prefers-color-scheme:dark){{text{{fill:#e6edf3}}.quiet{{fill:#9198a1}}.line{{stroke:#9198a1}}}}</style>\n"
    );
    text(&mut svg, "", 12.0, 22.0, "start", &format!("<tspan font-weight=\"600\">{}</tspan>", escape(title)));
    legend(&mut svg, scale);
    let bottom = TOP + STEP * bars.len() as f64;
    let place = Axis::of(scale, bars);
    for (at, label) in place.ticks() {
        _ = writeln!(
            svg,
            "<line class=\"line\" x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{bottom:.1}\" stroke-width=\"1\" opacity=\"0.25\"/>",
            TOP - 4.0
        );
        text(&mut svg, "quiet", at, bottom + 18.0, "middle", &label);
    }
    for (number, bar) in bars.iter().enumerate() {
        draw_bar(&mut svg, &place, bar, TOP + STEP * number as f64);
    }
    // Where both are alike, or the limit is.
    let one = place.at(1.0);
    _ = writeln!(
        svg,
        "<line class=\"line\" x1=\"{one:.1}\" y1=\"{:.1}\" x2=\"{one:.1}\" y2=\"{bottom:.1}\" stroke-width=\"1.5\"/>",
        TOP - 4.0
    );
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, scale: Scale) {
    let words = match scale {
        Scale::Ratio => ["as good as asked for", "not as good", "nothing asked for"].as_slice(),
        Scale::Share => &["within the limit", "beyond it"],
    };
    let mut x = 12.0;
    for (word, colour) in words.iter().zip([GOOD, BAD, OTHER]) {
        _ = writeln!(svg, "<rect x=\"{x:.1}\" y=\"34\" width=\"10\" height=\"10\" fill=\"{colour}\"/>");
        text(svg, "quiet", x + 15.0, 43.5, "start", word);
        x += 33.0 + 6.7 * word.len() as f64;
    }
    if scale == Scale::Ratio {
        _ = writeln!(
            svg,
            "<line class=\"line\" x1=\"{x:.1}\" y1=\"32\" x2=\"{x:.1}\" y2=\"46\" stroke-width=\"2.5\"/>"
        );
        text(svg, "quiet", x + 8.0, 43.5, "start", "what was asked for; arrows lead to where it is better");
    }
}

fn draw_bar(svg: &mut String, place: &Axis, bar: &Bar, top: f64) {
    let (y, middle) = (top + (STEP - THICK) / 2.0, top + STEP / 2.0 + 4.5);
    let from = if place.scale == Scale::Ratio { place.at(1.0) } else { LEFT };
    let to = place.at(bar.value);
    let colour = match bar.is_met {
        Some(true) => GOOD,
        Some(false) => BAD,
        None => OTHER,
    };
    let (x, width) = (from.min(to), (to - from).abs().max(1.5));
    let arrow = match (place.scale, bar.more_is_better) {
        (Scale::Share, _) => "",
        (Scale::Ratio, true) => " →",
        (Scale::Ratio, false) => " ←",
    };
    text(svg, "", LEFT - 14.0, middle, "end", &format!("{}{arrow}", escape(&bar.label)));
    _ = writeln!(svg, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{THICK:.0}\" fill=\"{colour}\"/>");
    if let Some(limit) = bar.limit {
        let at = place.at(limit);
        _ = writeln!(
            svg,
            "<line class=\"line\" x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke-width=\"2.5\"/>",
            y - 3.0,
            y + THICK + 3.0
        );
    }
    let figure = format!("{}<tspan class=\"quiet\">{}</tspan>", escape(&bar.figure), escape(&bar.asked));
    text(svg, "", RIGHT + 16.0, middle, "start", &figure);
}

/// Where values are between left and right.
struct Axis {
    scale: Scale,
    least: f64,
    most: f64,
}

impl Axis {
    fn of(scale: Scale, bars: &[Bar]) -> Self {
        let values = || bars.iter().flat_map(|bar| [Some(bar.value), bar.limit]).flatten();
        let (least, most) = match scale {
            // To the next doubling.
            Scale::Ratio => (
                2.0_f64.powf(values().fold(0.5, f64::min).log2().floor()),
                2.0_f64.powf(values().fold(2.0, f64::max).log2().ceil()),
            ),
            Scale::Share => (0.0, values().fold(1.0, f64::max)),
        };
        Self { scale, least, most }
    }

    fn at(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Ratio => (value / self.least).log2() / (self.most / self.least).log2(),
            Scale::Share => value / self.most,
        };
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Ratio => {
                let doublings = std::iter::successors(Some(self.least), |value| Some(value * 2.0));
                let ticks = doublings.take_while(|value| *value <= self.most);
                ticks.map(|value| (self.at(value), ratio(value))).collect()
            }
            Scale::Share => [0.0, 0.25, 0.5, 0.75, 1.0]
                .iter()
                .map(|share| (self.at(*share), format!("{:.0} %", share * 100.0)))
                .collect(),
        }
    }
}

fn ratio(value: f64) -> String {
    if value < 1.0 { format!("1/{:.0}", 1.0 / value) } else { format!("{value:.0}×") }
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, anchor: &str, words: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    _ = writeln!(svg, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
