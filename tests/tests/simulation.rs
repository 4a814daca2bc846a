//! The simulator as a test: a fixed set of seeds, the seeds that once failed, and the faults that it must find.

use std::time::Duration;

use compline_tests::sim::plant::Plant;
use compline_tests::sim::pulse::Patience;
use compline_tests::sim::sweep::{Found, Sweep, seeds_in};
use compline_tests::sim::{run, run_within};

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
    let seeds = seeds_in(include_str!("../seeds.txt")).unwrap_or_else(|line| panic!("tests/seeds.txt: {line}"));
    let found = Sweep::replay(&seeds);
    assert!(found.failed.is_empty(), "{}", listed(&found));
    assert_eq!(seeds_in("# comment\n\n17  rule `stale`\n4").as_deref(), Ok(&[17, 4][..]));
    assert!(seeds_in("seed 17").is_err());
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

#[test]
fn a_tick_that_does_not_read_its_lease_is_found() {
    assert_eq!(rule_that_finds(Plant::LeaseUnread), "lease");
}

#[test]
fn wall_clocks_compared_to_tell_who_lives_are_found() {
    assert_eq!(rule_that_finds(Plant::WallClocksCompared), "hasty");
}

#[test]
fn who_spins_at_one_instant_is_named() {
    let patience = Patience { still: Duration::from_secs(3), ..Patience::default() };
    let violation = run_within(1, Some(Plant::NeverWaits), patience).violation.expect("nothing can go on");
    assert_eq!(violation.rule, "livelock");
    assert!(violation.detail.contains("calls of the store") && violation.detail.contains("scheduler-"), "{violation}");
}

#[test]
fn who_does_not_come_back_is_named() {
    let patience = Patience { still: Duration::from_secs(3), ..Patience::default() };
    let outcome = run_within(1, Some(Plant::NeverReturns), patience);
    let violation = outcome.violation.as_ref().expect("nothing can go on");
    assert_eq!(violation.rule, "livelock");
    assert!(violation.detail.contains("a task of scheduler-"), "{violation}");
    assert!(outcome.to_string().contains("cargo xtask sim --seed 1"), "{outcome}");
}

#[test]
fn a_run_without_end_names_who_goes_on() {
    let patience = Patience { lasts: Duration::from_secs(5), ..Patience::default() };
    let violation = run_within(1, None, patience).violation.expect("it lasts longer");
    assert_eq!(violation.rule, "endless");
    assert!(violation.detail.contains("what befalls scheduler-0"), "{violation}");
}

/// An edit, a pause or a deletion and a pass that does not see it: each pair by itself, for owners do nothing else then.
#[test]
fn an_edit_that_a_tick_does_not_see_is_found() {
    let rule = rule_that_finds(Plant::EditUnseenByTick);
    assert!(["machine", "one-per-slot", "next-slot"].contains(&rule), "{rule}");
}

#[test]
fn a_pause_that_a_tick_does_not_see_is_found() {
    let rule = rule_that_finds(Plant::PauseUnseenByTick);
    assert!(["machine", "paused", "one-per-slot", "next-slot"].contains(&rule), "{rule}");
}

#[test]
fn a_deletion_that_a_claim_does_not_see_is_found() {
    assert_eq!(rule_that_finds(Plant::DeleteUnseenByClaim), "paused");
}

#[test]
fn a_deletion_that_a_completion_does_not_see_is_found() {
    let rule = rule_that_finds(Plant::DeleteUnseenByComplete);
    assert!(["cancel", "machine"].contains(&rule), "{rule}");
}

#[test]
fn a_trigger_that_a_tick_counts_away_is_found() {
    assert_eq!(rule_that_finds(Plant::TriggerUncountedByTick), "counters");
}

#[test]
fn a_scheduler_that_ticks_by_older_zone_data_is_found() {
    assert_eq!(rule_that_finds(Plant::ZonesIgnored), "zones");
}
