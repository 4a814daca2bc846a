//! Prints the data set: `cargo run -p csv-report --example generate > csv-report/data/bike-counts.csv`.

use std::io::Write;

#[path = "../src/dataset.rs"]
mod dataset;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(dataset::csv().as_bytes())
}
