//! An experiment's figure as SVG: a panel per unit with the simulated series and the paper's points.

use nichrome_sim::experiment::{Claim, Compared, Definition, Scale, StatementKind, XAxis, with_unit};
use plotters::prelude::*;

use super::judged::Place;
use super::number::significant;
use crate::chart::{self, Area, COLORS, Chart, GRID, INK, Painted, font, legend, swatch};

/// Size of a panel, in pixels.
const SIZE: (u32, u32) = (640, 460);
/// Free space at the end of an x axis, relative to its length.
const MARGIN: f64 = 0.03;
/// Color of a paper's number outside the tolerance.
const MISSED: RGBColor = RGBColor(200, 30, 30);
/// Free space of a y axis per line of the legend, relative to its length.
const LEGEND_LINE: f64 = 0.08;

/// Selects claims of some kinds.
type IsOfKind = fn((Claim, StatementKind)) -> bool;

/// Series with common axes.
pub(super) struct Panel<'a> {
    pub(super) label: String,
    pub(super) scale: Scale,
    /// Index of the first series' color.
    first_color: usize,
    pub(super) lines: Vec<(&'a str, Vec<&'a Place>)>,
}

/// Draws all panels side by side.
pub(super) fn draw(definition: &Definition, compared: &[Place]) -> anyhow::Result<String> {
    let panels = panels(definition, compared);
    let width = SIZE.0 * panels.len().max(1) as u32;
    chart::svg((width, SIZE.1), |area| {
        let title = format!("{} ({})", definition.title, definition.paper);
        let size = if panels.len() > 1 { 22 } else { 16 };
        let area = area.margin(8, 0, 0, 0).titled(&title, font(size))?;
        for (area, panel) in area.split_evenly((1, panels.len().max(1))).iter().zip(&panels) {
            paint(area, definition, panel)?;
        }
        Ok(())
    })
}

/// Groups series by unit, measured and derived ones separately.
pub(super) fn panels<'a>(definition: &'a Definition, compared: &'a [Place]) -> Vec<Panel<'a>> {
    let mut panels: Vec<(bool, &str, Panel<'a>)> = Vec::new();
    for name in definition.lines() {
        let is_derived = definition.derived.iter().any(|derived| derived.name == name);
        let places: Vec<&Place> = compared.iter().filter(|place| place.compared.series == name).collect();
        let unit = definition.unit_of_line(name).unwrap_or_default();
        let known = panels.iter_mut().find(|(derived, known, _)| *derived == is_derived && *known == unit);
        match known {
            Some((.., panel)) => panel.lines.push((name, places)),
            None => {
                let (label, scale) = axis(definition, name, unit, is_derived);
                let first_color = if is_derived { definition.series.len() } else { 0 };
                let lines = vec![(name, places)];
                panels.push((is_derived, unit, Panel { label, scale, first_color, lines }));
            }
        }
    }
    panels.into_iter().map(|(.., panel)| panel).collect()
}

/// Returns label and scale of the y axis for a panel's first series.
fn axis(definition: &Definition, name: &str, unit: &str, is_derived: bool) -> (String, Scale) {
    if let Some(axis) = definition.y.iter().find(|axis| axis.unit == unit && !is_derived) {
        return (axis.label.clone(), axis.scale);
    }
    let series = definition.series.iter().find(|series| series.name == name);
    let about = series.map_or(name, |series| series.metric.about);
    (with_unit(about, unit), Scale::Linear)
}

/// Returns the position of a number on an axis; `None` for non-positive numbers on a logarithmic one.
fn place(scale: Scale, number: f64) -> Option<f64> {
    let place = match scale {
        Scale::Linear => number,
        Scale::Log2 => number.log2(),
        Scale::Log10 => number.log10(),
    };
    Some(place).filter(|place| place.is_finite())
}

/// Returns the caption of the x axis.
pub(super) fn x_caption(definition: &Definition) -> String {
    let XAxis { scale, values, .. } = &definition.x;
    let caption = definition.x.caption();
    match *scale != Scale::Linear && values.contains(&0) {
        true => caption + "; 0 is not shown",
        false => caption,
    }
}

/// Returns the label of an axis position; on logarithmic axes, only at integer powers.
fn label(scale: Scale, place: f64) -> String {
    let is_whole = (place - place.round()).abs() < 1e-6;
    match scale {
        Scale::Linear => significant(place),
        _ if !is_whole => String::new(),
        Scale::Log2 => significant(place.round().exp2()),
        Scale::Log10 => significant(10f64.powf(place.round())),
    }
}

/// Returns the limits of an axis, extended at the end by `more` of its length.
fn range(scale: Scale, numbers: impl Iterator<Item = f64>, more: f64) -> (f64, f64) {
    let places = numbers.filter_map(|number| place(scale, number));
    let (least, most) =
        places.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), at| (least.min(at), most.max(at)));
    let (least, most) = match scale {
        _ if least > most => (0.0, 1.0),
        Scale::Linear => (least.min(0.0), most.max(0.0)),
        Scale::Log2 | Scale::Log10 => (least.floor(), most.ceil()),
    };
    let most = if least == most { least + 1.0 } else { most };
    (least, most + (most - least) * more)
}

/// Returns the number of ticks: one per power, or about six.
fn marks(scale: Scale, (least, most): (f64, f64)) -> usize {
    match scale {
        Scale::Linear => 7,
        Scale::Log2 | Scale::Log10 => ((most - least) as usize + 1).clamp(2, 12),
    }
}

fn paint(area: &Area<'_>, definition: &Definition, panel: &Panel<'_>) -> Painted {
    let places = || panel.lines.iter().flat_map(|(_, places)| places.iter());
    let (x_scale, y_scale) = (definition.x.scale, panel.scale);
    let xs = range(x_scale, places().map(|place| place.compared.x), MARGIN);
    let shown = places().flat_map(|place| {
        let compared = &place.compared;
        let ranges =
            [place.readings, place.samples].into_iter().flatten().flat_map(|(least, most)| [least, most]);
        [compared.value, compared.paper()].into_iter().flatten().chain(tolerated(compared)).chain(ranges)
    });
    let ys = range(y_scale, shown, LEGEND_LINE * (panel.lines.len() + 3) as f64);
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(xs.0..xs.1, ys.0..ys.1)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_labels(marks(x_scale, xs))
        .x_label_formatter(&|at| label(x_scale, *at))
        .x_desc(x_caption(definition))
        .y_labels(marks(y_scale, ys))
        .y_label_formatter(&|at| label(y_scale, *at))
        .y_desc(panel.label.as_str())
        .label_style(font(13))
        .axis_desc_style(font(14))
        .draw()?;
    let at = |x: f64, y: f64| Some((place(x_scale, x)?, place(y_scale, y)?));
    let colors = COLORS.into_iter().cycle().skip(panel.first_color);
    for ((name, places), color) in panel.lines.iter().zip(colors) {
        paint_series(&mut chart, name, places, color, &at)?;
    }
    paint_paper(&mut chart, &places().map(|place| &place.compared).collect::<Vec<_>>(), &at)?;
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}

/// Draws the values of a series, and their ranges over readings and samples. `at` returns the place of x and
/// y.
fn paint_series<'a, 'b: 'a>(
    chart: &mut Chart<'a, 'b>,
    name: &str,
    places: &[&Place],
    color: RGBColor,
    at: &impl Fn(f64, f64) -> Option<(f64, f64)>,
) -> Painted {
    for range in [|place: &Place| place.samples, |place: &Place| place.readings] {
        let ranged: Vec<_> =
            places.iter().filter_map(|place| Some((place.compared.x, range(place)?))).collect();
        let least = ranged.iter().filter_map(|(x, (least, _))| at(*x, *least));
        let most = ranged.iter().rev().filter_map(|(x, (_, most))| at(*x, *most));
        let bars = ranged.iter().filter_map(|(x, (least, most))| Some(vec![at(*x, *least)?, at(*x, *most)?]));
        chart.draw_series(bars.map(|ends| PathElement::new(ends, color.mix(0.5).stroke_width(5))))?;
        chart.draw_series([Polygon::new(least.chain(most).collect::<Vec<_>>(), color.mix(0.15))])?;
    }
    let points: Vec<_> =
        places.iter().filter_map(|place| at(place.compared.x, place.compared.value?)).collect();
    chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
    chart
        .draw_series(LineSeries::new(points, color.stroke_width(2)))?
        .label(name)
        .legend(move |at| swatch(at, color));
    Ok(())
}

/// Draws the paper's numbers with their tolerances; a bound as a triangle that points to the numbers it
/// allows. `at` returns the place of x and y.
fn paint_paper<'a, 'b: 'a>(
    chart: &mut Chart<'a, 'b>,
    compared: &[&Compared],
    at: &impl Fn(f64, f64) -> Option<(f64, f64)>,
) -> Painted {
    let tolerances =
        compared.iter().map(|place| tolerated(place).filter_map(|end| at(place.x, end)).collect::<Vec<_>>());
    chart.draw_series(tolerances.map(|ends| PathElement::new(ends, INK.stroke_width(1))))?;
    let papers = |wanted: IsOfKind| {
        let of_kind = compared.iter().filter(move |place| place.claim.zip(place.kind).is_some_and(wanted));
        of_kind.filter_map(|place| Some((at(place.x, place.paper()?)?, place.is_near()))).collect::<Vec<_>>()
    };
    let predicted = papers(|(claim, kind)| is_value(claim) && kind == StatementKind::Predicted);
    if !predicted.is_empty() {
        chart
            .draw_series(
                predicted.iter().map(|(point, near)| Circle::new(*point, 6, ink(*near).stroke_width(2))),
            )?
            .label("the paper, predicted (red: beyond the tolerance)")
            .legend(|(x, y)| Circle::new((x + 7, y), 5, INK.stroke_width(2)));
    }
    let others = papers(|(claim, kind)| is_value(claim) && kind != StatementKind::Predicted);
    if !others.is_empty() {
        chart
            .draw_series(
                others.iter().map(|(point, near)| Cross::new(*point, 5, ink(*near).stroke_width(1))),
            )?
            .label("the paper: fitted, repeated, derived or by construction")
            .legend(|(x, y)| Cross::new((x + 7, y), 4, INK.stroke_width(1)));
    }
    let bounds: [(&str, i32, IsOfKind); 2] = [
        ("the paper: at least this (red: less)", -1, |(claim, _)| matches!(claim, Claim::AtLeast(_))),
        ("the paper: at most this (red: more)", 1, |(claim, _)| matches!(claim, Claim::AtMost(_))),
    ];
    for (name, direction, wanted) in bounds {
        let bounds = papers(wanted);
        if !bounds.is_empty() {
            let outline = move |at| triangle(at, 6, direction);
            chart
                .draw_series(bounds.iter().map(|(point, near)| {
                    EmptyElement::at(*point)
                        + PathElement::new(outline((0, 0)).to_vec(), ink(*near).stroke_width(2))
                }))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new(triangle((x + 7, y), 5, direction).to_vec(), INK.stroke_width(2))
                });
        }
    }
    Ok(())
}

/// Returns true if a claim is a value, not a bound.
fn is_value(claim: Claim) -> bool {
    matches!(claim, Claim::Value(..))
}

/// Returns the outline of a triangle around a place, `size` pixels from its middle to its tip, which points
/// up (-1) or down (1).
fn triangle((x, y): (i32, i32), size: i32, direction: i32) -> [(i32, i32); 4] {
    let (tip, base) = (y + direction * size, y - direction * (size - 2));
    [(x, tip), (x + size, base), (x - size, base), (x, tip)]
}

/// Returns the color of a paper's number: red outside the tolerance.
fn ink(is_near: Option<bool>) -> RGBColor {
    if is_near == Some(false) { MISSED } else { INK }
}

/// Returns the limits of the tolerance around the paper's number.
fn tolerated(place: &Compared) -> impl Iterator<Item = f64> {
    let ends = match place.claim {
        Some(Claim::Value(paper, Some(tolerance))) => {
            let distance = tolerance.distance(paper);
            Some([paper - distance, paper + distance])
        }
        _ => None,
    };
    ends.into_iter().flatten()
}
