//! The simulator as a test: a fixed set of seeds, the seeds that once failed, and the faults that it must find.

use compline_tests::sim::plant::Plant;
use compline_tests::sim::run;
use compline_tests::sim::sweep::{Found, Sweep};

/// How many seeds run with every `cargo test`. `cargo xtask sim --seeds N` runs more.
const SEEDS: u64 = 100;
/// Within so many seeds a planted fault is found.
const PLANTED_SEEDS_MAX: u64 = 400;

fn listed(found: &Found) -> String {
    found.failed.iter().map(|outcome| format!("\n{outcome}")).collect()
}

#[test]
fn no_promise_is_broken_and_every_kind_of_fault_happens() {
    let found = Sweep { from: 1, seeds: SEEDS, plant: None }.run(|_| {});
    assert!(found.failed.is_empty(), "{}", listed(&found));
    assert_eq!(found.never_happened(), Vec::<&str>::new());
}

#[test]
fn seeds_that_once_failed_pass() {
    let seeds = include_str!("../seeds.txt").lines().filter(|line| !line.starts_with('#'));
    for line in seeds {
        let seed = line.split_whitespace().next().and_then(|word| word.parse().ok());
        let outcome = run(seed.unwrap_or_else(|| panic!("tests/seeds.txt: {line:?} begins with no seed")), None);
        assert!(outcome.violation.is_none(), "{line}\n{outcome}");
    }
}

#[test]
fn one_seed_is_one_commit_log() {
    for seed in 1..=3 {
        let (first, second) = (run(seed, None), run(seed, None));
        assert_eq!((first.digest, first.faults, first.events), (second.digest, second.faults, second.events));
        assert_ne!(first.digest, run(seed + 1_000, None).digest);
    }
}

fn rule_that_finds(plant: Plant) -> &'static str {
    let found = Sweep { from: 1, seeds: PLANTED_SEEDS_MAX, plant: Some(plant) }.run(|_| {});
    let violation = found.failed.first().and_then(|outcome| outcome.violation.as_ref());
    violation.map_or("none", |violation| violation.rule)
}

#[test]
fn a_report_whose_fence_is_not_checked_is_found() {
    // Whether the stale report ends an attempt or gives it back depends on what the other node does meanwhile.
    let rule = rule_that_finds(Plant::FenceUnchecked);
    assert!(["stale", "give-back"].contains(&rule), "{rule}");
}

#[test]
fn a_next_slot_planned_in_a_transaction_of_its_own_is_found() {
    assert_eq!(rule_that_finds(Plant::NextSlotApart), "next-slot");
}

#[test]
fn a_claim_that_forgets_what_it_took_is_found() {
    assert_eq!(rule_that_finds(Plant::ClaimForgotten), "settled");
}
