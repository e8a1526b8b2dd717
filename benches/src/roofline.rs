//! The roofline of a run as an SVG: operations a second over operations a byte, on logarithmic axes, under the ceilings that the
//! memory and the arithmetic set (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009).

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::kernels::{Measured, Results};

/// The picture's size, and the plot's place in it.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 760.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 980.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 680.0;

/// Colours that people with any kind of colour vision tell apart (Okabe and Ito, 2008).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d"];
/// Width and height of a label's character, at 10 pixels.
const CHARACTER: [f64; 2] = [5.6, 11.0];

/// A logarithmic axis over whole decades.
struct Axis {
    low: i32,
    high: i32,
    from: f64,
    to: f64,
}

impl Axis {
    /// The decades that hold all positive `values`, two at least.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let logs = values.filter(|value| value.is_finite() && *value > 0.0).map(f64::log10);
        let (low, high) =
            logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| (low.min(log), high.max(log)));
        let (low, high) = if low.is_finite() { (low.floor() as i32, high.ceil() as i32) } else { (0, 1) };
        Axis { low, high: high.max(low + 2), from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from
            + (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low) * (self.to - self.from)
    }

    fn first(&self) -> f64 {
        10f64.powi(self.low)
    }

    fn last(&self) -> f64 {
        10f64.powi(self.high)
    }
}

/// A rectangle that a label or point takes: left, top, right, bottom.
type Taken = [f64; 4];

fn free(taken: &[Taken], [left, top, right, bottom]: Taken) -> bool {
    left >= LEFT
        && right <= RIGHT
        && top >= TOP
        && bottom <= BOTTOM
        && taken.iter().all(|t| right < t[0] || left > t[2] || bottom < t[1] || top > t[3])
}

/// `1.2 Tflop/s`: a rate with a prefix.
fn rate(value: f64, unit: &str) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (scale, prefix) = prefixes.into_iter().find(|(scale, _)| value >= *scale).unwrap_or((1.0, ""));
    format!("{:.3} {prefix}{unit}", value / scale)
}

/// A power of ten as text: 10³.
fn power(exponent: i32) -> String {
    let digit = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        _ => '⁰',
    };
    format!("10{}", exponent.to_string().chars().map(digit).collect::<String>())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A mark of one of four shapes, so that more families than colours stay apart.
fn mark(shape: usize, x: f64, y: f64, colour: &str) -> String {
    let style = format!("fill=\"{colour}\" fill-opacity=\"0.8\" stroke=\"#fff\" stroke-width=\"0.7\"");
    match shape % 3 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" {style}/>"),
        1 => format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" {style}/>", x - 4.0, y - 4.0),
        _ => format!(
            "<path d=\"M{x:.1} {:.1} L{:.1} {y:.1} L{x:.1} {:.1} L{:.1} {y:.1} Z\" {style}/>",
            y - 5.5,
            x + 5.5,
            y + 5.5,
            x - 5.5
        ),
    }
}

/// The picture. Kernels that compute nothing (copies, fills) have no place in it, and probes, which are no part of a walk, get none.
pub fn svg(results: &Results) -> String {
    let points: Vec<&Measured> = results
        .kernels
        .iter()
        .filter(|m| m.flops > 0 && m.seconds > 0.0 && !m.family.ends_with("_probe"))
        .collect();
    let memory = results.read_only_bytes_s;
    let x = Axis::over(points.iter().map(|m| m.intensity()), LEFT, RIGHT);
    // Where the memory's ceiling leaves the plot it need not be seen, where it meets the arithmetic's it must.
    let ceilings = [Some(memory * x.first()), results.fma_flops_s];
    let y = Axis::over(points.iter().map(|m| m.flops_s()).chain(ceilings.into_iter().flatten()), BOTTOM, TOP);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let mut put = |line: String| {
        let _ = writeln!(out, "{line}");
    };
    put(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#222\">"
    ));
    put(format!("<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>"));
    put(format!(
        "<text x=\"{LEFT}\" y=\"30\" font-size=\"18\" font-weight=\"600\">Kernels on {}</text>",
        escaped(&results.device)
    ));
    let time = match results.simulated {
        true => "simulated, in the host's time",
        false => "operands rotated out of the second-level cache",
    };
    put(format!(
        "<text x=\"{LEFT}\" y=\"50\" fill=\"#666\">operations and bytes by declared cost; {time}</text>"
    ));
    grid(&mut put, &x, &y);
    let mut taken: Vec<Taken> = Vec::new();
    roofs(&mut put, results, &x, &y, &mut taken);
    marks(&mut put, &points, &x, &y, &mut taken);
    put("</svg>".to_owned());
    out
}

fn grid(put: &mut impl FnMut(String), x: &Axis, y: &Axis) {
    for decade in x.low..=x.high {
        let at = x.place(10f64.powi(decade));
        put(format!("<path d=\"M{at:.1} {TOP} V{BOTTOM}\" stroke=\"#ddd\"/>"));
        put(format!(
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 18.0,
            power(decade)
        ));
    }
    for decade in y.low..=y.high {
        let at = y.place(10f64.powi(decade));
        put(format!("<path d=\"M{LEFT} {at:.1} H{RIGHT}\" stroke=\"#ddd\"/>"));
        put(format!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            power(decade - 9)
        ));
    }
    // Twos to nines of each decade.
    for step in 2..10 {
        for decade in x.low..x.high {
            let at = x.place(f64::from(step) * 10f64.powi(decade));
            put(format!("<path d=\"M{at:.1} {BOTTOM} v5\" stroke=\"#999\"/>"));
        }
        for decade in y.low..y.high {
            let at = y.place(f64::from(step) * 10f64.powi(decade));
            put(format!("<path d=\"M{LEFT} {at:.1} h-5\" stroke=\"#999\"/>"));
        }
    }
    put(format!(
        "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#999\"/>",
        RIGHT - LEFT,
        BOTTOM - TOP
    ));
    let middle = (LEFT + RIGHT) / 2.0;
    put(format!(
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">operations a byte</text>",
        BOTTOM + 42.0
    ));
    let middle = (TOP + BOTTOM) / 2.0;
    put(format!(
        "<text x=\"26\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 26 {middle})\">Gflop/s</text>"
    ));
}

/// The ceilings: the memory's, and the arithmetic's where it is known, each up to where the other is lower.
fn roofs(put: &mut impl FnMut(String), results: &Results, x: &Axis, y: &Axis, taken: &mut Vec<Taken>) {
    let memory = results.read_only_bytes_s;
    let arithmetic = results.fma_flops_s.unwrap_or(f64::INFINITY);
    let top = arithmetic.min(y.last());
    // Within the plot: from where it comes in at the bottom or the left to the other ceiling, the top or the right.
    let from = x.first().max(y.first() / memory);
    let to = x.last().min(top / memory);
    if from < to {
        let [x0, y0, x1, y1] = [x.place(from), y.place(from * memory), x.place(to), y.place(to * memory)];
        put(format!(
            "<path d=\"M{x0:.1} {y0:.1} L{x1:.1} {y1:.1}\" stroke=\"#222\" stroke-width=\"1.6\" fill=\"none\"/>"
        ));
        let angle = (y1 - y0).atan2(x1 - x0).to_degrees();
        let text = format!("memory, read only, measured: {}", rate(memory, "B/s"));
        let (tx, ty) = (x0 + (x1 - x0) * 0.06, y0 + (y1 - y0) * 0.06);
        put(format!(
            "<text transform=\"translate({tx:.1} {ty:.1}) rotate({angle:.1})\" dy=\"-6\" font-size=\"11\">{text}</text>"
        ));
        // The line and the label along it, in steps small enough that nothing is put between.
        let steps = 200;
        for step in 0..=steps {
            let along = f64::from(step) / f64::from(steps);
            let (cx, cy) = (x0 + (x1 - x0) * along, y0 + (y1 - y0) * along);
            taken.push([cx - 2.0, cy - 2.0, cx + 2.0, cy + 2.0]);
        }
        for step in 0..steps {
            let along = f64::from(step) / f64::from(steps) * text.len() as f64 * CHARACTER[0];
            let (cos, sin) = (angle.to_radians().cos(), angle.to_radians().sin());
            let (cx, cy) = (tx + along * cos, ty + along * sin);
            taken.push([cx - 8.0, cy - 20.0, cx + 12.0, cy + 2.0]);
        }
    }
    if let Some(flops) = results.fma_flops_s.filter(|flops| *flops <= y.last()) {
        let from = x.first().max(flops / memory);
        if from < x.last() {
            let at = y.place(flops);
            put(format!(
                "<path d=\"M{:.1} {at:.1} H{RIGHT}\" stroke=\"#222\" stroke-width=\"1.6\"/>",
                x.place(from)
            ));
        }
        let at = y.place(flops);
        put(format!("<path d=\"M{LEFT} {at:.1} H{RIGHT}\" stroke=\"#222\" stroke-dasharray=\"2 4\"/>"));
        let text =
            format!("float32 fused multiply-add at the highest clock, computed: {}", rate(flops, "flop/s"));
        put(format!("<text x=\"{}\" y=\"{:.1}\" font-size=\"11\">{text}</text>", LEFT + 8.0, at - 6.0));
        taken.push([LEFT, at - 18.0, LEFT + 8.0 + text.len() as f64 * CHARACTER[0] * 1.1, at]);
    }
}

/// The points, the labels that find room, and what stands for which family.
fn marks(put: &mut impl FnMut(String), points: &[&Measured], x: &Axis, y: &Axis, taken: &mut Vec<Taken>) {
    let mut families: BTreeMap<&str, Vec<&Measured>> = BTreeMap::new();
    for &point in points {
        families.entry(point.family).or_default().push(point);
    }
    let place = |m: &Measured| (x.place(m.intensity()), y.place(m.flops_s()));
    taken.extend(points.iter().map(|m| place(m)).map(|(px, py)| [px - 4.5, py - 4.5, px + 4.5, py + 4.5]));
    let mut labels = Vec::new();
    for (index, (family, members)) in families.iter().enumerate() {
        let (colour, shape) = (COLOURS[index % COLOURS.len()], index / COLOURS.len());
        for m in members {
            let (px, py) = place(m);
            let title = format!(
                "{}/{}: {:.2} µs, {}, {}, {:.3} flop/B",
                m.kernel,
                m.case,
                m.seconds * 1e6,
                rate(m.bytes_s(), "B/s"),
                rate(m.flops_s(), "flop/s"),
                m.intensity()
            );
            put(format!("<g>{}<title>{}</title></g>", mark(shape, px, py, colour), escaped(&title)));
        }
        // The fastest case of each kernel is the one to name.
        let mut named: BTreeMap<&str, &Measured> = BTreeMap::new();
        for &m in members {
            let best = named.entry(m.kernel).or_insert(m);
            if m.flops_s() > best.flops_s() {
                *best = m;
            }
        }
        labels.extend(named.into_values().map(|m| (m, colour)));
        let row = TOP + 14.0 + index as f64 * 20.0;
        put(mark(shape, RIGHT + 24.0, row, colour));
        put(format!("<text x=\"{}\" y=\"{:.1}\">{}</text>", RIGHT + 36.0, row + 4.0, escaped(family)));
    }
    // The heaviest first: they are what a token's time is made of.
    labels.sort_by_key(|(m, _)| std::cmp::Reverse(m.read_bytes + m.write_bytes));
    for (m, colour) in labels {
        let (px, py) = place(m);
        let (width, height) = (m.kernel.len() as f64 * CHARACTER[0], CHARACTER[1]);
        let corners = [
            (px + 7.0, py - height / 2.0),
            (px - 7.0 - width, py - height / 2.0),
            (px - width / 2.0, py - 8.0 - height),
            (px - width / 2.0, py + 8.0),
            (px + 7.0, py - 6.0 - height),
            (px + 7.0, py + 6.0),
        ];
        let room = corners
            .into_iter()
            .map(|(left, top)| [left, top, left + width, top + height])
            .find(|&wanted| free(taken, wanted));
        // The point's title says it where there is no room.
        if let Some(found) = room {
            taken.push(found);
            put(format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\" fill=\"{colour}\">{}</text>",
                found[0],
                found[3] - 2.0,
                escaped(m.kernel)
            ));
        }
    }
}
