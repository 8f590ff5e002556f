//! The plots, as SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::sheet::{Column, Sheet, median};
use super::tables::{heading, short};
use crate::record::{Kind, Section, Time, Unit};
use crate::stats::Spread;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: u32 = 960;
/// The height of a bar with the space around it.
const BAR: u32 = 20;
/// The height of a panel's title and of the numbers of its axis.
const MARGINS: u32 = 64;
/// The x coordinates where bars start, and where they end at most.
const BARS: (i32, i32) = (260, 830);
/// The minimum width of the legend.
const LEGEND: u32 = 220;
const TEXT: (&str, u32) = ("sans-serif", 13);
const LINES: [RGBColor; 8] = [
    RGBColor(31, 111, 235),
    RGBColor(200, 80, 40),
    RGBColor(40, 140, 80),
    RGBColor(140, 80, 180),
    RGBColor(120, 120, 120),
    RGBColor(200, 160, 0),
    RGBColor(20, 160, 180),
    RGBColor(60, 60, 60),
];

/// Draws the plot of a section.
///
/// # Errors
///
/// Returns an error if the file cannot be written.
pub fn draw(sheet: &Sheet, section: Section, path: &Path) -> Result<()> {
    match section {
        Section::Size => {
            let x = |time: &Time| time.size.map(|size| size as f64);
            let name = |time: &Time| heading(&(time.case.clone(), time.workers));
            curves(sheet, section, path, &["µs per batch by samples in the dataset"], |_| 0, x, name, true)
        }
        Section::Workers => {
            let titles = ["W1: µs per batch by workers", "W2: µs per batch by workers"];
            let x = |time: &Time| time.workers.map(|workers| workers as f64);
            curves(sheet, section, path, &titles, |time| usize::from(time.case != "w1"), x, |t| t.peer.clone(), false)
        }
        Section::Ranks => {
            let titles = ["ms by ranks", "µs per batch by ranks", "Shards, and ranks without one, by ranks"];
            let panel = |time: &Time| match time.unit {
                Unit::Millis => 0,
                Unit::MicrosPerBatch => 1,
                _ => 2,
            };
            // Only the largest size of each case, as most costs do not depend on it.
            let largest = |time: &Time| {
                sheet.times(section).filter(|other| other.case == time.case).map(|time| time.size).max()
                    == Some(time.size)
            };
            let x = |time: &Time| time.ranks.filter(|_| largest(time)).map(|ranks| ranks as f64);
            curves(sheet, section, path, &titles, panel, x, |time| time.case.clone(), true)
        }
        _ => bars(sheet, section, path),
    }
    .map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
}

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// Draws a panel of bars for each heat.
fn bars(sheet: &Sheet, section: Section, path: &Path) -> Drawn {
    let columns = sheet.columns(section);
    let heights: Vec<u32> = columns.iter().map(|c| MARGINS + BAR * sheet.heat(section, c).count() as u32).collect();
    let root = SVGBackend::new(path, (WIDTH, heights.iter().sum())).into_drawing_area();
    root.fill(&WHITE)?;
    let spreads: Vec<Spread> =
        columns.iter().flat_map(|column| sheet.heat(section, column)).filter_map(quartiles).collect();
    let Some((low, _)) = range(spreads.iter().map(|spread| spread.low)) else { return Ok(()) };
    let Some((_, high)) = range(spreads.iter().map(|spread| spread.high)) else { return Ok(()) };
    let mut rest = root.clone();
    for (column, height) in columns.iter().zip(heights) {
        let (panel, below) = rest.split_vertically(height);
        bar_panel(sheet, section, column, (low.log10() - 0.2, high.log10() + 0.05), &panel)?;
        rest = below;
    }
    root.present()?;
    Ok(())
}

fn quartiles(time: &Time) -> Option<Spread> {
    Spread::of(time.values.iter().copied())
}

/// Draws bars from the fastest to the slowest contender, on a logarithmic axis, with lines from quartile to quartile.
fn bar_panel(sheet: &Sheet, section: Section, column: &Column, (low, high): (f64, f64), area: &Area<'_>) -> Drawn {
    let mut times: Vec<(&Time, Spread)> =
        sheet.heat(section, column).filter_map(|time| Some((time, quartiles(time)?))).collect();
    times.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let Some(first) = times.first() else { return Ok(()) };
    let x = |value: f64| BARS.0 + ((value.log10() - low) / (high - low) * f64::from(BARS.1 - BARS.0)) as i32;
    let title = format!("{}: {} (logarithmic)", heading(column), first.0.unit);
    area.draw_text(&title, &("sans-serif", 15).into_text_style(area), (10, 10))?;
    let bottom = 34 + (BAR as usize * times.len()) as i32;
    for digits in low.floor() as i32..=high.ceil() as i32 {
        // Wide axes have powers of ten alone.
        for &step in if high - low < 2.5 { &[1.0, 2.0, 5.0][..] } else { &[1.0] } {
            let value = step * 10_f64.powi(digits);
            if (low..high).contains(&value.log10()) {
                let (at, grey) = (x(value), RGBColor(210, 210, 210));
                area.draw(&PathElement::new([(at, 34), (at, bottom)], grey))?;
                area.draw_text(&short(value), &TEXT.into_text_style(area), (at - 8, bottom + 4))?;
            }
        }
    }
    for (i, (time, spread)) in times.iter().enumerate() {
        let top = 36 + i as i32 * BAR as i32;
        let color = match time.kind {
            Kind::Ours => RGBColor(31, 111, 235),
            Kind::Variant => RGBColor(120, 170, 245),
            Kind::Peer => RGBColor(160, 160, 160),
            Kind::Limit => RGBColor(120, 190, 130),
        };
        let end = x(spread.median);
        area.draw(&Rectangle::new([(BARS.0, top), (end, top + 14)], color.filled()))?;
        area.draw(&PathElement::new([(x(spread.low), top + 7), (x(spread.high), top + 7)], BLACK))?;
        area.draw_text(&time.peer, &TEXT.into_text_style(area), (10, top))?;
        let beyond = end.max(x(spread.high)) + 6;
        area.draw_text(&short(spread.median), &TEXT.into_text_style(area), (beyond, top))?;
    }
    Ok(())
}

/// Draws curves over `x`, one for each `name`, in the panel that `panel` returns. The y axis is logarithmic; the x axis is
/// logarithmic if `logarithmic` is set.
#[expect(clippy::too_many_arguments, reason = "one call for each plot of this kind")]
fn curves(
    sheet: &Sheet,
    section: Section,
    path: &Path,
    titles: &[&str],
    panel: impl Fn(&Time) -> usize,
    x: impl Fn(&Time) -> Option<f64>,
    name: impl Fn(&Time) -> String,
    logarithmic: bool,
) -> Drawn {
    let root = SVGBackend::new(path, (WIDTH, 360 * titles.len() as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let columns = sheet.columns(section);
    for (i, (area, title)) in root.split_evenly((titles.len(), 1)).iter().zip(titles).enumerate() {
        let longest = columns.iter().map(|(case, _)| 32 + 7 * case.len() as u32).max().unwrap_or(0);
        let (area, legend) = area.split_horizontally(WIDTH - LEGEND.max(longest));
        let times: Vec<&Time> =
            columns.iter().flat_map(|column| sheet.heat(section, column)).filter(|time| panel(time) == i).collect();
        let points: Vec<(String, f64, f64)> =
            times.iter().filter_map(|time| Some((name(time), x(time)?, median(time)))).collect();
        let Some((low, high)) = range(points.iter().map(|point| point.2)) else { continue };
        let Some((left, right)) = range(points.iter().map(|point| point.1)) else { continue };
        let mut names: Vec<&String> = Vec::new();
        for (name, ..) in &points {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut chart = ChartBuilder::on(&area);
        chart.caption(title, ("sans-serif", 15)).margin(10).x_label_area_size(30).y_label_area_size(60);
        let y = (low / 1.5..high * 1.5).log_scale();
        let series = |name: &String| -> Vec<(f64, f64)> {
            points.iter().filter(|point| point.0 == *name).map(|point| (point.1, point.2)).collect()
        };
        // The two kinds of axes give charts of different types.
        macro_rules! finish {
            ($chart:expr) => {{
                let mut chart = $chart;
                let mut mesh = chart.configure_mesh();
                mesh.light_line_style(TRANSPARENT).y_labels(8);
                mesh.y_label_formatter(&|y| short(*y)).x_label_formatter(&|x| number(*x)).draw()?;
                for (name, color) in names.iter().zip(LINES) {
                    let points = series(name);
                    chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, color.filled())))?;
                    chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
                }
            }};
        }
        for (i, (name, color)) in names.iter().zip(LINES).enumerate() {
            let y = 50 + i as i32 * BAR as i32;
            legend.draw(&PathElement::new([(4, y), (24, y)], color.stroke_width(2)))?;
            legend.draw_text(name, &TEXT.into_text_style(&legend), (32, y - 7))?;
        }
        if logarithmic {
            finish!(chart.build_cartesian_2d((left..right).log_scale(), y)?);
        } else {
            finish!(chart.build_cartesian_2d(left..right, y)?);
        }
    }
    root.present()?;
    Ok(())
}

/// Returns the minimum and the maximum.
fn range(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    Some((values.clone().min_by(f64::total_cmp)?, values.max_by(f64::total_cmp)?))
}

/// Formats a number on an axis, with large powers of ten as such.
fn number(value: f64) -> String {
    let digits = value.log10();
    if value >= 1000.0 && digits.fract().abs() < 1e-9 { format!("10^{digits:.0}") } else { format!("{value:.0}") }
}
