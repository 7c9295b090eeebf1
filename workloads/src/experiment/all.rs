//! The list of experiments. A new one is one file here, its `mod` line and its line in the list.

mod ace;
mod breakdown;
mod fbarc_clusters;
mod measures;
mod pool_size;
mod stores;
mod swizzling;
mod threads;
mod watt_effectiveness;
mod watt_evictor;
mod watt_evictor_scaling;
mod watt_overall;
mod watt_overhead;
mod write_weight;

use super::design::Experiment;

/// Every experiment, in the order of the list.
pub const ALL: &[Experiment] = &[
    watt_effectiveness::EXPERIMENT,
    watt_evictor::EXPERIMENT,
    watt_overhead::EXPERIMENT,
    watt_evictor_scaling::EXPERIMENT,
    watt_overall::EXPERIMENT,
    write_weight::EXPERIMENT,
    ace::EXPERIMENT,
    pool_size::EXPERIMENT,
    threads::EXPERIMENT,
    swizzling::EXPERIMENT,
    breakdown::EXPERIMENT,
    fbarc_clusters::EXPERIMENT,
];

/// The experiment of this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|one| one.name == name)
}

/// Every experiment with one line about it.
pub fn listed() -> String {
    let width = ALL.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let line = |one: &Experiment| format!("{:<width$}  {} ({})\n", one.name, one.about, one.source);
    ALL.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::design::{Across, Design, Scale};
    use crate::experiment::plan::Plan;
    use std::collections::BTreeSet;
    use std::path::Path;

    const SCALES: [Scale; 3] = [Scale::Smoke, Scale::Small, Scale::Paper];

    fn designs() -> impl Iterator<Item = (&'static str, Scale, Design)> {
        let of = |one: &'static Experiment| {
            SCALES.map(|scale| (one.name, scale, (one.design)(scale, 2)))
        };
        ALL.iter().flat_map(of)
    }

    #[test]
    fn every_cell_is_there_once_and_has_the_axes_of_the_others() {
        for (name, scale, design) in designs() {
            let axes = |index: usize| -> Vec<&str> {
                design.cells[index].at.iter().map(|(axis, _)| *axis).collect()
            };
            let mut seen = BTreeSet::new();
            for (index, cell) in design.cells.iter().enumerate() {
                assert!(seen.insert(cell.name()), "{name} {scale:?}: {} twice", cell.name());
                assert_eq!(axes(index), axes(0), "{name} {scale:?}");
            }
            assert!(design.repetitions >= 1 && !design.cells.is_empty(), "{name} {scale:?}");
        }
    }

    #[test]
    fn figures_and_claims_name_measures_and_cells_that_are_there() {
        for one in ALL {
            let designs = SCALES.map(|scale| (one.design)(scale, 2));
            for design in &designs {
                let measured = |name: &str| design.measures.iter().any(|one| one.name == name);
                let is_axis = |axis: &str| !design.cells[0].on(axis).is_empty();
                for figure in &design.figures {
                    let across = match figure.across {
                        Across::Groups(axis) | Across::Numbers(axis, ..) => is_axis(axis),
                        Across::Measure(measure, _) => measured(measure),
                    };
                    let known = across && measured(figure.up) && is_axis(figure.series);
                    assert!(known, "{}: {}", one.name, figure.title);
                }
                for claim in &design.claims {
                    assert!(measured(claim.measure), "{}: {claim:?}", one.name);
                    let cells = designs.iter().flat_map(|design| &design.cells);
                    let found = cells.filter(|cell| cell.is_at(&claim.at)).count();
                    assert!(found > 0, "{}: no cell for {claim:?}", one.name);
                }
            }
        }
    }

    #[test]
    fn the_small_scale_takes_at_most_fifteen_minutes_on_two_cores() {
        for (name, scale, design) in designs().filter(|(_, scale, _)| *scale != Scale::Paper) {
            let experiment = find(name).unwrap();
            let (out, left_out) = (Path::new("."), Vec::new());
            let seconds = Plan { experiment, scale, design, left_out, out }.seconds();
            let limit = if scale == Scale::Small { 15.0 * 60.0 } else { 60.0 };
            assert!(seconds <= limit, "{name} {scale:?} takes {seconds:.0} s");
        }
    }

    #[test]
    fn every_experiment_is_listed_with_its_source() {
        let listed = listed();
        assert_eq!(listed.lines().count(), ALL.len());
        for one in ALL {
            assert!(listed.contains(one.name) && listed.contains(one.source), "{listed}");
            assert!(find(one.name).is_some());
        }
        assert!(find("no-such-experiment").is_none());
    }
}
