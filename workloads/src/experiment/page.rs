//! The results of an experiment as text, as CSV and as an HTML page.

use super::design::{Across, Cell, Figure};
use super::plan::Plan;
use super::results::{Ratio, Results};
use crate::machine::Machine;
use crate::report::bars::{Bar, Bars};
use crate::report::figures::{bytes, plural, significant, table};
use crate::report::html::Page;
use crate::report::plot::{Plot, Scale, Series};

/// The axes of the cells, in the order of their first use.
fn axes(results: &Results<'_>) -> Vec<&'static str> {
    let mut axes = Vec::new();
    for (axis, _) in results.design.cells.iter().flat_map(|cell| &cell.at) {
        if !axes.contains(axis) {
            axes.push(*axis);
        }
    }
    axes
}

/// A ratio, with the paper's in parentheses.
fn ratio_text(ratio: Ratio<'_>) -> String {
    let ours = ratio.ours.map_or("-".to_owned(), |ours| format!("{ours:.2}"));
    match ratio.claim {
        Some(claim) => format!("{ours} ({:.2})", claim.ratio),
        None => ours,
    }
}

/// The table of all cells: columns and rows.
fn cells(results: &Results<'_>) -> (Vec<String>, Vec<Vec<String>>) {
    let axes = axes(results);
    let mut columns: Vec<String> = axes.iter().map(|axis| (*axis).to_owned()).collect();
    for measure in &results.design.measures {
        columns.extend([measure.name.to_owned(), "spread".to_owned(), "ratio".to_owned()]);
    }
    let row = |(index, cell): (usize, &Cell)| {
        let mut row: Vec<String> = axes.iter().map(|axis| cell.on(axis).to_owned()).collect();
        for measure in &results.design.measures {
            let summary = results.summary(index, measure.name);
            row.push(summary.map_or("-".to_owned(), |one| significant(one.median)));
            row.push(summary.map_or("-".to_owned(), |one| format!("{:.0} %", one.spread())));
            row.push(ratio_text(results.ratio(index, measure.name)));
        }
        row
    };
    (columns, results.design.cells.iter().enumerate().map(row).collect())
}

/// Sentences that explain the table.
fn explanation(plan: &Plan<'_>) -> Vec<String> {
    let design = &plan.design;
    let mut lines: Vec<String> = design
        .measures
        .iter()
        .map(|measure| format!("{}: {}, median of the runs", measure.name, measure.label))
        .collect();
    lines.push("spread: largest minus smallest, of the median".to_owned());
    if let Some((axis, value)) = &design.baseline {
        lines.push(format!("ratio: to {axis}={value}; in parentheses the paper's"));
    }
    let mut sources: Vec<&str> = design.claims.iter().map(|claim| claim.source).collect();
    sources.dedup();
    lines.extend(sources.into_iter().map(|source| format!("the paper's ratios: {source}")));
    lines.extend(design.notes.iter().cloned());
    lines.extend(plan.left_out_lines());
    lines
}

/// The results as text.
pub fn text(plan: &Plan<'_>, results: &Results<'_>) -> String {
    let (columns, rows) = cells(results);
    let mut lines = vec![columns];
    lines.extend(rows);
    let explanation = explanation(plan).join("\n");
    format!(
        "{} ({})\n\n{}\n{explanation}\n",
        plan.experiment.name,
        plan.experiment.source,
        table("", &lines)
    )
}

/// The results as CSV: a row for each measure of each cell.
pub fn csv(results: &Results<'_>) -> String {
    let axes = axes(results);
    let quoted = |text: &str| match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let head = "measure,median,low,high,spread_percent,runs,ratio,paper_ratio,paper_source";
    let mut text = format!("{},{head}\n", axes.join(","));
    for (index, cell) in results.design.cells.iter().enumerate() {
        for measure in &results.design.measures {
            let Some(summary) = results.summary(index, measure.name) else { continue };
            let Ratio { ours, claim } = results.ratio(index, measure.name);
            let number = |value: Option<f64>| value.map_or(String::new(), |one| one.to_string());
            let mut row: Vec<String> = axes.iter().map(|axis| quoted(cell.on(axis))).collect();
            row.extend([
                measure.name.to_owned(),
                summary.median.to_string(),
                summary.low.to_string(),
                summary.high.to_string(),
                format!("{:.1}", summary.spread()),
                summary.runs.to_string(),
                number(ours),
                number(claim.map(|claim| claim.ratio)),
                quoted(claim.map_or("", |claim| claim.source)),
            ]);
            text += &(row.join(",") + "\n");
        }
    }
    text
}

/// The results as an HTML page.
pub fn html(plan: &Plan<'_>, results: &Results<'_>, build: &str) -> String {
    let machine = Machine::this();
    let mut page = Page::new(&format!("wattle experiment {}", plan.experiment.name));
    page.facts(&[
        ("experiment", plan.experiment.about.to_owned()),
        ("paper", plan.experiment.source.to_owned()),
        ("scale", format!("{:?}", plan.scale).to_lowercase()),
        ("runs", format!("{} of each cell, alternating", plan.design.repetitions)),
        (
            "machine",
            format!(
                "{}, {}, {} memory, {}",
                machine.cpu,
                plural(machine.cores as u64, "core"),
                bytes(machine.memory_bytes),
                machine.kernel
            ),
        ),
        ("version", format!("{}, build {build}", env!("CARGO_PKG_VERSION"))),
    ]);
    page.heading("Figures");
    for figure in &plan.design.figures {
        page.drawing(&svg(figure, results));
    }
    let (columns, rows) = cells(results);
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    page.table("Cells", &columns, &rows);
    page.heading("Notes");
    let notes = explanation(plan);
    page.facts(&notes.into_iter().map(|note| ("", note)).collect::<Vec<_>>());
    page.finish()
}

fn svg(figure: &Figure, results: &Results<'_>) -> String {
    match figure.across {
        Across::Groups(axis) => bars(figure, axis, results).svg(),
        Across::Numbers(axis, logarithmic, label) => {
            let across = |cell: usize| results.design.cells[cell].on(axis).parse().ok();
            let scale = if logarithmic { Scale::Logarithmic } else { Scale::Linear };
            lines(figure, &across, scale, label, results).svg()
        }
        Across::Measure(measure, label) => {
            let across = |cell: usize| Some(results.summary(cell, measure)?.median);
            lines(figure, &across, Scale::Linear, label, results).svg()
        }
    }
}

/// The different values of `axis` among the cells of a figure, in their order.
fn values<'a>(figure: &Figure, axis: &str, results: &Results<'a>) -> Vec<&'a str> {
    let mut values = Vec::new();
    for cell in results.design.cells.iter().filter(|cell| cell.is_at(&figure.only)) {
        if !values.contains(&cell.on(axis)) {
            values.push(cell.on(axis));
        }
    }
    values
}

/// Label of the measure of the vertical axis.
fn label(figure: &Figure, results: &Results<'_>) -> &'static str {
    let found = results.design.measures.iter().find(|measure| measure.name == figure.up);
    found.map_or(figure.up, |measure| measure.label)
}

fn bars(figure: &Figure, axis: &'static str, results: &Results<'_>) -> Bars {
    let series = values(figure, figure.series, results);
    let group = |group: &str| {
        let bar = |one: &&str| {
            let at = |cell: &Cell| {
                cell.is_at(&figure.only) && cell.on(axis) == group && cell.on(figure.series) == *one
            };
            let cell = results.design.cells.iter().position(at)?;
            let summary = results.summary(cell, figure.up)?;
            Some(Bar {
                value: summary.median,
                range: (summary.low, summary.high),
                mark: results.expected(cell, figure.up),
            })
        };
        (group.to_owned(), series.iter().map(bar).collect())
    };
    Bars {
        title: figure.title.clone(),
        y_label: label(figure, results).to_owned(),
        groups: values(figure, axis, results).into_iter().map(group).collect(),
        series: series.into_iter().map(str::to_owned).collect(),
    }
}

fn lines(
    figure: &Figure,
    across: &dyn Fn(usize) -> Option<f64>,
    x_scale: Scale,
    x_label: &'static str,
    results: &Results<'_>,
) -> Plot {
    let cells = |one: &str| {
        let cells = results.design.cells.iter().enumerate();
        let at = move |cell: &Cell| cell.is_at(&figure.only) && cell.on(figure.series) == one;
        cells.filter(|(_, cell)| at(cell)).map(|(index, _)| index).collect::<Vec<_>>()
    };
    let line = |name: String, cells: &[usize], up: &dyn Fn(usize) -> Option<f64>| {
        let points = cells.iter().filter_map(|cell| Some((across(*cell)?, up(*cell)?)));
        let mut points: Vec<(f64, f64)> = points.collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series::new(name, points)
    };
    let mut series = Vec::new();
    for one in values(figure, figure.series, results) {
        let cells = cells(one);
        let median = |cell| Some(results.summary(cell, figure.up)?.median);
        let mut line_of_medians = line(one.to_owned(), &cells, &median);
        let range = |cell: &usize| {
            let summary = results.summary(*cell, figure.up)?;
            let range = (across(*cell)?, summary.low, summary.high);
            (summary.low < summary.high).then_some(range)
        };
        line_of_medians.ranges = cells.iter().filter_map(range).collect();
        series.push(line_of_medians);
        let paper =
            line(format!("{one}, paper"), &cells, &|cell| results.expected(cell, figure.up));
        if !paper.points.is_empty() {
            series.push(paper);
        }
    }
    Plot {
        title: figure.title.clone(),
        x_label,
        x_scale,
        y_label: label(figure, results),
        y_scale: Scale::Linear,
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::super::all::ALL;
    use super::super::results::tests::{design, entries};
    use super::*;
    use crate::experiment::design::Scale as Size;
    use std::path::Path;

    fn plan(out: &Path) -> Plan<'_> {
        let refuses = |_: &[String]| None;
        let plan = Plan::new(&ALL[0], Size::Smoke, None, out, &refuses);
        let left_out = vec![(design().cells[0].clone(), "the flag is not known".to_owned())];
        Plan { design: design(), left_out, ..plan }
    }

    #[test]
    fn text_csv_and_page_have_medians_ratios_and_those_of_the_paper() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(folder.path());
        let results = Results::of(&plan.design, &entries());
        let text = text(&plan, &results);
        for part in ["2.75", "1.38 (1.11)", "60 %", "left out, because the flag is not known"] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        let csv = csv(&results);
        assert_eq!(csv.lines().count(), 4, "{csv}");
        assert!(csv.starts_with("workload,policy,measure,median,low,high,"), "{csv}");
        let row = "1,random,reads,2.75,2.5,3,18.2,2,1.375,1.11,\"WATT, Figure 9\"";
        assert!(csv.contains(row), "{csv}");
        let page = html(&plan, &results, "0123");
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(page.contains("Reads (Figure &lt;9&gt;)") && !page.contains("NaN"), "{page}");
    }
}
