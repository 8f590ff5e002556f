//! The plots, as SVG.

use std::fmt::Write as _;

use super::sheet::{Sheet, Spread, spread};
use super::tables::{heading, short};
use crate::record::Kind;

const WIDTH: u32 = 960;
/// The height of a bar with the space around it, in pixels.
const BAR: u32 = 20;
/// The height of a panel's title, and the height of the title and the numbers of its axis.
const MARGINS: (u32, u32) = (34, 64);
/// The x coordinate where bars start, and the maximum at which they end.
const BARS: (f64, f64) = (260.0, 830.0);

/// A horizontal axis, in the unit of the values.
struct Axis {
    low: f64,
    high: f64,
    /// Whether the axis is linear. Only a linear axis begins at zero, so that lengths of bars have
    /// a meaning.
    linear: bool,
}

impl Axis {
    /// Returns the axis for these spreads: linear, unless they differ by more than a factor of ten.
    fn of(spreads: impl Iterator<Item = Spread> + Clone) -> Self {
        let high = spreads.clone().map(|spread| spread.high).fold(0.0, f64::max);
        let low = spreads.map(|spread| spread.low).fold(high, f64::min);
        if high <= 10.0 * low {
            Self { low: 0.0, high: high * 1.05, linear: true }
        } else {
            Self { low: low / 1.5, high: high * 1.1, linear: false }
        }
    }

    fn x(&self, value: f64) -> f64 {
        let share = match self.linear {
            true => value / self.high,
            false => (value / self.low).log10() / (self.high / self.low).log10(),
        };
        (BARS.0 + share * (BARS.1 - BARS.0)).round()
    }

    fn ticks(&self) -> Vec<f64> {
        let digits = |value: f64| value.log10().floor() as i32;
        let ticks: Vec<f64> = if self.linear {
            let power = 10_f64.powi(digits(self.high));
            let step = [0.2, 0.5, 1.0, 2.0].map(|step| step * power);
            let step = step.into_iter().find(|step| self.high / step < 8.0).unwrap_or(power);
            (0..8).map(|i| f64::from(i) * step).collect()
        } else {
            // Axes with a wide range have numbers only at powers of ten.
            let steps = if self.high / self.low < 300.0 { &[1.0, 2.0, 5.0][..] } else { &[1.0] };
            let powers = (digits(self.low)..=digits(self.high)).map(|digits| 10_f64.powi(digits));
            powers.flat_map(|power| steps.iter().map(move |step| step * power)).collect()
        };
        ticks.into_iter().filter(|tick| (self.low..self.high).contains(tick)).collect()
    }
}

/// Draws the plot of a section, with a panel for each comparison (see
/// [`Column`](super::sheet::Column)), all on the same axis.
pub fn draw(sheet: &Sheet, section: &str) -> Result<String, std::fmt::Error> {
    let columns = sheet.columns(section);
    let spreads: Vec<_> = columns.iter().flat_map(|column| sheet.comparison(section, column)).map(spread).collect();
    let axis = Axis::of(spreads.iter().copied());
    let (mut panels, mut top) = (String::new(), 0);
    for column in &columns {
        let mut times: Vec<_> = sheet.comparison(section, column).map(|time| (time, spread(time))).collect();
        times.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
        let Some((first, _)) = times.first() else { continue };
        let title = format!("{}: {}", heading(column), first.unit);
        let rows: Vec<_> = times.iter().map(|(time, spread)| (&*time.peer, color(time.kind), *spread)).collect();
        write!(panels, "<g transform='translate(0 {top})'>")?;
        panel(&mut panels, &title, &rows, &axis)?;
        panels.push_str("</g>\n");
        top += MARGINS.1 + BAR * times.len() as u32;
    }
    Ok(svg(top, &panels))
}

/// Draws one panel that shows how many times as fast slotline is as the fastest other loader.
pub fn ratios(title: &str, rows: &[(&str, Spread)]) -> Result<String, std::fmt::Error> {
    let axis = Axis { low: 0.5, ..Axis::of(rows.iter().map(|(_, spread)| *spread)) };
    let rows: Vec<_> = rows.iter().map(|(name, spread)| (*name, color(Kind::Ours), *spread)).collect();
    let mut panels = String::new();
    let (x, bottom) = (axis.x(1.0), MARGINS.0 + BAR * rows.len() as u32);
    writeln!(panels, "<path d='M{x} {}V{bottom}' stroke='black'/>", MARGINS.0)?;
    panel(&mut panels, title, &rows, &axis)?;
    Ok(svg(MARGINS.1 + BAR * rows.len() as u32, &panels))
}

fn svg(height: u32, panels: &str) -> String {
    let head = "<svg xmlns='http://www.w3.org/2000/svg' font-family='sans-serif' font-size='13'";
    let page = format!("<rect width='{WIDTH}' height='{height}' fill='white'/>");
    format!("{head} width='{WIDTH}' height='{height}'>\n{page}\n{panels}</svg>\n")
}

fn color(kind: Kind) -> &'static str {
    match kind {
        Kind::Ours => "#1f6feb",
        Kind::Variant => "#78aaf5",
        Kind::Peer => "#a0a0a0",
        Kind::Limit => "#78be82",
    }
}

/// Draws a bar for each row, or a dot on a logarithmic axis, with a line from the first to the
/// third quartile.
fn panel(to: &mut String, title: &str, rows: &[(&str, &str, Spread)], axis: &Axis) -> std::fmt::Result {
    let text = |to: &mut String, x: f64, y: u32, text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        writeln!(to, "<text x='{x}' y='{y}'>{text}</text>")
    };
    let scale = if axis.linear { "" } else { " (logarithmic)" };
    text(to, 10.0, 22, &format!("{title}{scale}"))?;
    let bottom = MARGINS.0 + BAR * rows.len() as u32;
    for tick in axis.ticks() {
        let at = axis.x(tick);
        writeln!(to, "<path d='M{at} {}V{bottom}' stroke='#d2d2d2'/>", MARGINS.0)?;
        text(to, at - 8.0, bottom + 15, &short(tick))?;
    }
    for ((name, color, spread), top) in rows.iter().zip((MARGINS.0 + 2..).step_by(BAR as usize)) {
        let (end, from, till) = (axis.x(spread.median), axis.x(spread.low), axis.x(spread.high));
        let middle = top + 7;
        if axis.linear {
            let width = end - BARS.0;
            writeln!(to, "<rect x='{}' y='{top}' width='{width}' height='14' fill='{color}'/>", BARS.0)?;
        }
        writeln!(to, "<path d='M{from} {middle}H{till}' stroke='black'/>")?;
        if !axis.linear {
            writeln!(to, "<circle cx='{end}' cy='{middle}' r='5' fill='{color}'/>")?;
        }
        text(to, 10.0, top + 11, name)?;
        text(to, end.max(till) + 9.0, top + 11, &short(spread.median))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_begin_at_zero_and_only_wide_ranges_are_logarithmic() {
        let spread = |median| Spread { low: median, median, high: median };
        let narrow = Axis::of([spread(2.0), spread(20.0)].into_iter());
        assert!(narrow.linear);
        assert_eq!((narrow.x(0.0), narrow.x(21.0)), BARS);
        assert_eq!(narrow.ticks(), [0.0, 5.0, 10.0, 15.0, 20.0]);
        let wide = Axis::of([spread(2.0), spread(21.0)].into_iter());
        assert!(!wide.linear);
        assert_eq!(wide.ticks(), [2.0, 5.0, 10.0, 20.0]);
    }
}
