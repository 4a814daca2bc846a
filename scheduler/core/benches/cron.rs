//! What the next fire costs, beside the crates `croner` and `cron` on the same inputs. `cargo bench -p compline-core`.
//!
//! Aims: under 1 µs for ordinary expressions, 20 µs for the worst legal one, and 1 ms to refuse what can never fire.

#![allow(missing_docs, reason = "the macro's function has nowhere to put a comment")]

use std::hint::black_box;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use compline_core::schedule::Gap;
use compline_core::schedule::cron::CronExpr;
use compline_core::schedule::zone::Zone;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use croner::parser::{CronParser, Seconds};

/// Read alike by all three engines: six fields, weekdays by name.
const ORDINARY: [&str; 5] = ["0 * * * * *", "0 */15 * * * *", "0 30 2 * * *", "0 0 9 * * MON-FRI", "0 0 0 1 1 *"];
/// The longest walks that the dialect allows.
const WORST: [&str; 4] =
    ["0 0 0 29 2 */7 *", "59 59 23 31 12 ? 9999", "0 0 12 31W 2,4,6,9,11,12 MON#5", "0 30 2 8 3 ?"];
const NEVER: [&str; 3] = ["0 0 30 2 *", "0 0 0 29 2 ? 2027", "0 0 0 29 2 ? 1971/2"];

fn after() -> DateTime<Utc> {
    DateTime::from_timestamp(1_796_040_007, 0).expect("an instant")
}

fn next_fire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("next fire, UTC");
    let parser = CronParser::builder().seconds(Seconds::Optional).build();
    for text in ORDINARY {
        let ours = CronExpr::parse(text).expect(text);
        let croner = parser.parse(text).expect(text);
        let cron = cron::Schedule::from_str(text).expect(text);
        group.bench_function(BenchmarkId::new("ours", text), |bencher| {
            bencher.iter(|| ours.next_after(black_box(after()), Zone::utc()));
        });
        group.bench_function(BenchmarkId::new("croner", text), |bencher| {
            bencher.iter(|| croner.find_next_occurrence(black_box(&after()), false));
        });
        group.bench_function(BenchmarkId::new("cron", text), |bencher| {
            bencher.iter(|| cron.after(black_box(&after())).next());
        });
    }
    group.finish();
}

fn next_fire_in_a_zone(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("next fire, America/New_York");
    let zone = Zone::parse("America/New_York").expect("listed");
    for text in ORDINARY.into_iter().chain(WORST) {
        let ours = CronExpr::parse(text).expect(text);
        group.bench_function(BenchmarkId::new("ours", text), |bencher| {
            bencher.iter(|| ours.next_after(black_box(after()), zone));
        });
    }
    // The zone skips this time every year, so that the walk ends at the end of its cycle.
    let always_skipped = CronExpr::parse("30 2 * 3 SUN#2").expect("sound");
    group.bench_function("ours/always skipped", |bencher| {
        bencher.iter(|| always_skipped.next_after_with(black_box(after()), zone, Some(Gap::Skip), None));
    });
    group.finish();
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    for text in ORDINARY.into_iter().chain(NEVER) {
        group.bench_function(BenchmarkId::new("ours", text), |bencher| {
            bencher.iter(|| CronExpr::parse(black_box(text)));
        });
    }
    group.finish();
}

criterion_group!(benches, next_fire, next_fire_in_a_zone, parse);
criterion_main!(benches);
