//! The plots, as SVG.

use std::fmt::Write as _;

use super::sheet::{Column, Sheet, Spread, spread};
use super::tables::{heading, short};
use crate::record::{Kind, Time};

const WIDTH: u32 = 960;
/// The height of a bar with the space around it.
const BAR: u32 = 20;
/// The heights of a panel's title, and of the title and the numbers of its axis.
const MARGINS: (u32, u32) = (34, 64);
/// The x coordinates where bars start, and where they end at most.
const BARS: (f64, f64) = (260.0, 830.0);

/// Draws the plot of a section: a panel of bars for each heat, on the same axis.
pub fn draw(sheet: &Sheet, section: &str) -> Result<String, std::fmt::Error> {
    let columns = sheet.columns(section);
    let spreads = || columns.iter().flat_map(|column| sheet.heat(section, column)).map(spread);
    let low = spreads().map(|spread| spread.low).fold(f64::INFINITY, f64::min).log10() - 0.2;
    let high = spreads().map(|spread| spread.high).fold(0.0, f64::max).log10() + 0.05;
    let (mut panels, mut top) = (String::new(), 0);
    for column in &columns {
        let mut times: Vec<_> = sheet.heat(section, column).map(|time| (time, spread(time))).collect();
        times.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
        write!(panels, "<g transform='translate(0 {top})'>")?;
        panel(&mut panels, column, &times, (low, high))?;
        panels.push_str("</g>\n");
        top += MARGINS.1 + BAR * times.len() as u32;
    }
    let head = "<svg xmlns='http://www.w3.org/2000/svg' font-family='sans-serif' font-size='13'";
    Ok(format!(
        "{head} width='{WIDTH}' height='{top}'>\n<rect width='{WIDTH}' height='{top}' fill='white'/>\n{panels}</svg>\n"
    ))
}

/// Draws bars from the fastest to the slowest contender, on a logarithmic axis, with lines from quartile to quartile.
fn panel(to: &mut String, column: &Column, times: &[(&Time, Spread)], (low, high): (f64, f64)) -> std::fmt::Result {
    let Some((first, _)) = times.first() else { return Ok(()) };
    let x = |value: f64| (BARS.0 + (value.log10() - low) / (high - low) * (BARS.1 - BARS.0)).round();
    let text = |to: &mut String, x: f64, y: u32, text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        writeln!(to, "<text x='{x}' y='{y}'>{text}</text>")
    };
    text(to, 10.0, 22, &format!("{}: {} (logarithmic)", heading(column), first.unit))?;
    let bottom = MARGINS.0 + BAR * times.len() as u32;
    // Wide axes have powers of ten alone.
    let steps = if high - low < 2.5 { &[1.0, 2.0, 5.0][..] } else { &[1.0] };
    for digits in low.floor() as i32..=high.ceil() as i32 {
        for value in steps.iter().map(|step| step * 10_f64.powi(digits)).filter(|v| (low..high).contains(&v.log10())) {
            let at = x(value);
            writeln!(to, "<path d='M{at} {}V{bottom}' stroke='#d2d2d2'/>", MARGINS.0)?;
            text(to, at - 8.0, bottom + 15, &short(value))?;
        }
    }
    for ((time, spread), top) in times.iter().zip((MARGINS.0 + 2..).step_by(BAR as usize)) {
        let color = match time.kind {
            Kind::Ours => "#1f6feb",
            Kind::Variant => "#78aaf5",
            Kind::Peer => "#a0a0a0",
            Kind::Limit => "#78be82",
        };
        let (end, from, till) = (x(spread.median), x(spread.low), x(spread.high));
        writeln!(
            to,
            "<rect x='{}' y='{top}' width='{}' height='14' fill='{color}'/>",
            BARS.0,
            (end - BARS.0).max(0.0)
        )?;
        writeln!(to, "<path d='M{from} {}H{till}' stroke='black'/>", top + 7)?;
        text(to, 10.0, top + 11, &time.peer)?;
        text(to, end.max(till) + 6.0, top + 11, &short(spread.median))?;
    }
    Ok(())
}
