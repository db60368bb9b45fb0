//! Small panels of lines, as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 230.0;
const HEIGHT: f64 = 110.0;
const GAP: f64 = 50.0;
const TOP: f64 = 70.0;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Stroke {
    pub(crate) colour: &'static str,
    pub(crate) width: f64,
    pub(crate) dashes: &'static str,
}

pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    /// Seconds and values.
    pub(crate) lines: Vec<(Vec<(f64, f64)>, Stroke)>,
}

/// Panels column by column, so many in each, below a legend.
pub(crate) fn draw(legend: &[(&str, Stroke)], panels: &[Panel], rows: usize) -> String {
    let columns = panels.len().div_ceil(rows);
    let (width, height) = (place(columns, WIDTH), TOP + place(rows, HEIGHT) - GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, (name, stroke)) in legend.iter().enumerate() {
        let x = place(number, 165.0);
        polyline(&mut svg, &[(x, 24.0), (x + 26.0, 24.0)], *stroke);
        text(&mut svg, x + 31.0, 28.0, "start", name);
    }
    for (number, panel) in panels.iter().enumerate() {
        let (left, top) = (place(number / rows, WIDTH), TOP - 20.0 + place(number % rows, HEIGHT) - GAP / 2.0);
        panel.draw(&mut svg, left, top, number % rows == 0);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where the panel of a number begins, after a gap each.
fn place(number: usize, size: f64) -> f64 {
    GAP + f64::from(u32::try_from(number).unwrap()) * (size + GAP)
}

impl Panel {
    fn draw(&self, svg: &mut String, left: f64, top: f64, titled: bool) {
        let points = || self.lines.iter().flat_map(|(points, _)| points);
        let seconds = points().map(|(second, _)| *second).fold(1.0, f64::max);
        let most = nice(points().map(|(_, value)| *value).fold(1.0, f64::max));
        if titled {
            let _ = write!(svg, "<g font-weight=\"bold\">");
            text(svg, left, top - 24.0, "start", &self.title);
            svg.push_str("</g>\n");
        }
        text(svg, left, top - 7.0, "start", self.unit);
        for part in [0.0, 0.5, 1.0] {
            let y = top + HEIGHT * (1.0 - part);
            polyline(svg, &[(left, y), (left + WIDTH, y)], Stroke { colour: "#dddddd", width: 1.0, dashes: "" });
            text(svg, left - 5.0, y + 4.0, "end", &format!("{}", most * part));
        }
        for second in [0.0, 30.0, 60.0, 90.0] {
            text(svg, left + WIDTH * second / seconds, top + HEIGHT + 14.0, "middle", &format!("{second} s"));
        }
        for (points, stroke) in &self.lines {
            let scaled: Vec<(f64, f64)> = points
                .iter()
                .map(|(second, value)| (left + WIDTH * second / seconds, top + HEIGHT * (1.0 - value / most)))
                .collect();
            polyline(svg, &scaled, *stroke);
        }
    }
}

/// The next round number, whose half is one too.
fn nice(value: f64) -> f64 {
    [2.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 100.0, 200.0, 400.0]
        .into_iter()
        .find(|nice| value <= *nice)
        .unwrap_or(600.0)
}

fn polyline(svg: &mut String, points: &[(f64, f64)], stroke: Stroke) {
    let Stroke { colour, width, dashes } = stroke;
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-dasharray=\"{dashes}\"/>",
        points.join(" ")
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}
