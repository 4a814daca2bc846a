//! A report on a CSV: totals, one line per group, medians, and the values that stand out.

#[cfg(test)]
mod dataset;
mod statistics;
mod table;

use compline_sdk::{Context, TaskError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use statistics::{Summary, outliers};
use table::Groups;

/// A city's hourly bicycle counts: 5,760 rows of 4 counters. `dataset.rs` makes it.
const BUILT_IN: &str = include_str!("../data/bike-counts.csv");
/// A report is read by people: more lines than this are counted, not listed.
const LISTED_OUTLIERS_MAX: usize = 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Params {
    /// The table, with a header line. Without it the built-in one is taken.
    csv: Option<String>,
    /// The column whose values make the groups.
    group_by: String,
    /// The column that is summed up. Every value in it is a number.
    value: String,
    /// A value stands out when it lies this many deviations from its group's median.
    #[schemars(range(min = 0.1))]
    outlier_threshold: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self { csv: None, group_by: "station".into(), value: "count".into(), outlier_threshold: 8.0 }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    rows: usize,
    #[serde(flatten)]
    overall: Summary,
    groups: Vec<Group>,
    outliers_found: usize,
    outliers: Vec<Outlier>,
}

#[derive(Debug, Serialize)]
struct Group {
    name: String,
    rows: usize,
    #[serde(flatten)]
    summary: Summary,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Outlier {
    /// The line in the file, from 1; the header is line 1.
    line: u64,
    group: String,
    value: f64,
    deviations: f64,
}

#[compline_sdk::task]
fn csv_report(ctx: &Context, params: Params) -> Result<Report, TaskError> {
    if params.outlier_threshold <= 0.0 {
        return Err(TaskError::permanent("`outlier_threshold` is greater than 0"));
    }
    let text = params.csv.as_deref().unwrap_or(BUILT_IN);
    let groups = table::read(text, &params.group_by, &params.value)?;
    let report = report(&groups, params.outlier_threshold)?;
    ctx.info(format_args!("{} rows in {} groups", report.rows, report.groups.len()));
    if report.outliers_found > 0 {
        ctx.warn(format_args!("{} values stand out", report.outliers_found));
    }
    Ok(report)
}

fn report(groups: &Groups, threshold: f64) -> Result<Report, TaskError> {
    let all: Vec<f64> = groups.values().flatten().map(|row| row.value).collect();
    let overall = Summary::of(&all).ok_or_else(|| TaskError::permanent("`csv` has a header and no rows"))?;
    let mut lines = Vec::new();
    let mut found = Vec::new();
    for (name, rows) in groups {
        let values: Vec<f64> = rows.iter().map(|row| row.value).collect();
        let Some(summary) = Summary::of(&values) else { continue };
        found.extend(outliers(&values, threshold).into_iter().map(|(index, deviations)| Outlier {
            line: rows[index].line,
            group: name.clone(),
            value: rows[index].value,
            deviations,
        }));
        lines.push(Group { name: name.clone(), rows: rows.len(), summary });
    }
    found.sort_by(|a, b| b.deviations.abs().total_cmp(&a.deviations.abs()).then(a.line.cmp(&b.line)));
    let outliers_found = found.len();
    found.truncate(LISTED_OUTLIERS_MAX);
    Ok(Report { rows: all.len(), overall, groups: lines, outliers_found, outliers: found })
}

#[cfg(test)]
mod tests {
    use compline_sdk::ErrorKind;

    use super::*;

    fn of(csv: &str) -> Result<Report, TaskError> {
        let params =
            Params { csv: Some(csv.into()), group_by: "who".into(), value: "n".into(), outlier_threshold: 8.0 };
        csv_report(&Context::for_test(), params)
    }

    #[test]
    fn the_built_in_table_is_the_one_that_the_generator_makes() {
        assert!(BUILT_IN == dataset::csv(), "run the generator again (see README.md)");
    }

    #[test]
    fn the_built_in_report_adds_up_and_finds_what_was_put_in() {
        let report = csv_report(&Context::for_test(), Params::default()).unwrap();
        assert_eq!(report.rows, 5760);
        assert_eq!(report.groups.iter().map(|group| group.rows).sum::<usize>(), report.rows);
        assert_eq!(report.groups.iter().map(|group| group.summary.total).sum::<f64>(), report.overall.total);
        let stadium: Vec<f64> = report
            .outliers
            .iter()
            .filter(|outlier| outlier.group == "University")
            .map(|outlier| outlier.value)
            .collect();
        assert_eq!(stadium, [1480.0, 1125.0, 890.0]);
        assert_eq!((report.outliers[0].value, report.outliers[0].group.as_str()), (9999.0, "North Park"));
        assert_eq!(report.outliers_found, 4);
    }

    #[test]
    fn groups_are_summed_apart_and_quotes_are_understood() {
        let report = of("who,n\n\"Smith, A\",1.5\nB,2\n\"Smith, A\",3\n").unwrap();
        let groups: Vec<_> = report.groups.iter().map(|group| (group.name.as_str(), group.summary.total)).collect();
        assert_eq!(groups, [("B", 2.0), ("Smith, A", 4.5)]);
        assert_eq!((report.overall.total, report.overall.median), (6.5, 2.0));
    }

    #[test]
    fn what_cannot_be_summed_up_is_refused_for_good_with_its_place() {
        for (csv, said) in [
            ("who,m\na,1\n", "`value`: no column `n`; there are who, m"),
            ("n\n1\n", "`group_by`: no column `who`; there are n"),
            ("who,n\na,1\nb,many\n", "`csv`, line 3: `many` in column `n` is not a number"),
            ("who,n\na,1\nb,NaN\n", "`csv`, line 3: `NaN` in column `n` is not a number"),
            ("who,n\na,1\nb\n", "`csv`, line 3: it has 1 field, and the header has 2"),
            ("who,n\n", "`csv` has a header and no rows"),
            ("", "`group_by`: no column `who`; there are none"),
        ] {
            let error = of(csv).unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::Permanent, said), "{csv:?}");
        }
    }
}
