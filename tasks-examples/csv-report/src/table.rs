//! Reading the two columns that matter out of a CSV.

use std::collections::BTreeMap;

use compline_sdk::TaskError;
use csv::{ErrorKind, Reader, StringRecord};

/// The rows of each group, in the order of the file.
pub type Groups = BTreeMap<String, Vec<Row>>;

pub struct Row {
    /// From 1; the header is line 1.
    pub line: u64,
    pub value: f64,
}

pub fn read(text: &str, group_by: &str, value: &str) -> Result<Groups, TaskError> {
    let mut reader = Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(refusal)?.clone();
    let group_column = column(&header, "group_by", group_by)?;
    let value_column = column(&header, "value", value)?;
    let mut groups = Groups::new();
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(refusal)? {
        let line = record.position().map_or(0, csv::Position::line);
        let number = number(&record[value_column]).ok_or_else(|| {
            let found = &record[value_column];
            TaskError::permanent(format_args!("`csv`, line {line}: `{found}` in column `{value}` is not a number"))
        })?;
        let row = Row { line, value: number };
        match groups.get_mut(&record[group_column]) {
            Some(rows) => rows.push(row),
            None => {
                groups.insert(record[group_column].to_owned(), vec![row]);
            }
        }
    }
    Ok(groups)
}

fn column(header: &StringRecord, parameter: &str, name: &str) -> Result<usize, TaskError> {
    header.iter().position(|column| column == name).ok_or_else(|| {
        let mut names = header.iter().collect::<Vec<_>>().join(", ");
        if names.is_empty() {
            names.push_str("none");
        }
        TaskError::permanent(format_args!("`{parameter}`: no column `{name}`; there are {names}"))
    })
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

fn refusal(error: csv::Error) -> TaskError {
    match error.kind() {
        ErrorKind::UnequalLengths { pos: Some(position), expected_len, len } => TaskError::permanent(format_args!(
            "`csv`, line {}: it has {len} field{}, and the header has {expected_len}",
            position.line(),
            if *len == 1 { "" } else { "s" }
        )),
        _ => TaskError::permanent(format_args!("`csv`: {error}")),
    }
}
