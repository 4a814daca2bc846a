//! Slots that nobody queued in time, spread slots, and bounds.

use std::collections::BTreeSet;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::State;
use compline_core::job::{Bounds, LATE_GRACE, Misfire, MisfirePolicy, Overlap};
use proptest::prelude::*;

use crate::player::{Player, at};

fn rule(policy: MisfirePolicy, deadline: u64) -> Misfire {
    Misfire { policy, deadline: Duration::from_secs(deadline), ..Misfire::default() }
}

/// The slots that a job queued, in seconds.
fn queued(player: &Player) -> Vec<i64> {
    player.queued.iter().map(|(slot, _)| slot.timestamp() - at(0).timestamp()).collect()
}

/// `* * * * *`, and no scheduler from 08:29:00 to 10:21:30: 112 slots are missed.
#[test]
fn c27_after_downtime_each_policy_runs_what_it_says() {
    const MINUTE: i64 = 60;
    let down = 29 * MINUTE + 1;
    let up = (2 * 60 + 21) * MINUTE + 30;
    let newest = (2 * 60 + 21) * MINUTE;
    for (misfire, expected) in [
        (rule(MisfirePolicy::Skip, 3_600), vec![]),
        (rule(MisfirePolicy::RunLatest, 3_600), vec![newest]),
        (rule(MisfirePolicy::RunAll, 200), vec![newest - 2 * MINUTE, newest - MINUTE, newest]),
        (rule(MisfirePolicy::RunAll, 7_200), (30..=2 * 60 + 21).map(|minute| minute * MINUTE).collect()),
    ] {
        let mut player = Player::new("* * * * *", misfire, Overlap::Allow);
        for second in 0..=down {
            player.now = at(second);
            player.tick();
        }
        let before = player.queued.len();
        assert_eq!(before, 29);
        player.now = at(up);
        player.tick();
        assert_eq!(queued(&player)[before..], expected, "{misfire:?}");
        // Whatever was missed, the next one is on time.
        player.now = at(newest + MINUTE);
        player.tick();
        assert_eq!(player.queued.last(), Some(&(at(newest + MINUTE), at(newest + MINUTE))));
        let accounts = player.accounts();
        let missed = accounts.values().filter(|account| ["missed", "misfire"].contains(account)).count();
        assert_eq!(missed, 112 - expected.len(), "the others are visible as missed");
        assert!(player.missed.len() <= 1, "an outage is one stretch");
    }
}

/// What is written does not grow with what is skipped.
#[test]
fn a_week_over_a_minute_job_is_a_few_decisions_beside_the_slots_that_run() {
    const WEEK: i64 = 7 * 86_400;
    for (misfire, runs) in [
        (rule(MisfirePolicy::Skip, 0), 0),
        (rule(MisfirePolicy::RunLatest, 3_600), 1),
        (rule(MisfirePolicy::RunAll, 3_600), 60),
        (Misfire { cap: 5, ..rule(MisfirePolicy::RunAll, 3_600) }, 5),
        (rule(MisfirePolicy::RunAll, 8 * 86_400), 1_000),
    ] {
        let mut player = Player::new("* * * * *", misfire, Overlap::Allow);
        player.now = at(WEEK + 20);
        player.tick();
        assert_eq!(player.queued.len(), runs, "{misfire:?}");
        assert!(player.decided <= 2 * runs + 1, "{} decisions for {misfire:?}", player.decided);
        assert!(player.missed.len() <= 1);
        let accounts = player.accounts();
        assert_eq!(accounts.len(), 10_080);
        let skipped = accounts.values().filter(|account| ["missed", "misfire"].contains(account)).count();
        assert_eq!(skipped, 10_080 - runs);
    }
}

#[test]
fn a_slot_within_the_grace_is_not_late() {
    let grace = LATE_GRACE.as_secs() as i64;
    for policy in [MisfirePolicy::Skip, MisfirePolicy::RunLatest] {
        let mut player = Player::new("* * * * * *", rule(policy, 3_600), Overlap::Allow);
        player.now = at(1 + grace);
        player.tick();
        assert_eq!(queued(&player), (1..=1 + grace).collect::<Vec<_>>(), "{policy:?}: a change of guard costs nothing");
        player.now = at(1 + grace + 2 + grace);
        player.tick();
        let late = 2 + grace;
        let newest = 1 + grace + 2 + grace;
        let expected: Vec<_> = match policy {
            MisfirePolicy::Skip => (late + 1..=newest).collect(),
            _ => vec![newest],
        };
        assert_eq!(queued(&player)[1 + grace as usize..], expected, "{policy:?}");
    }
}

#[test]
fn lateness_counts_from_the_splayed_time() {
    let splay = Duration::from_secs(1_800);
    let mut player =
        Player::within("0 * * * *", rule(MisfirePolicy::Skip, 0), Overlap::Allow, splay, Bounds::default());
    let slot = player.table().first(at(0)).expect("a slot");
    let due = player.table().due(slot);
    assert!(due > slot + LATE_GRACE, "this job's delay is longer than the grace");
    player.now = due.saturating_sub(Duration::from_micros(1));
    player.tick();
    assert!(player.queued.is_empty(), "never early");
    player.now = due + LATE_GRACE;
    player.tick();
    assert_eq!(player.queued, [(slot, due + LATE_GRACE)]);
    let next = player.job.run.next.expect("a next slot");
    assert_eq!((next.slot, next.due), (at(7_200), player.table().due(at(7_200))), "planned from the planned instant");
}

#[test]
fn after_max_runs_or_the_end_nothing_is_planned() {
    let bounds = Bounds { max_runs: Some(3), ..Bounds::default() };
    let mut player = Player::within("* * * * *", Misfire::default(), Overlap::Allow, Duration::ZERO, bounds);
    for minute in 1..10 {
        player.now = at(minute * 60);
        player.tick();
    }
    assert_eq!((queued(&player), player.job.run.next), (vec![60, 120, 180], None));
    // An edit may have lowered the number under a slot that was planned before.
    let mut player = Player::within("* * * * *", Misfire::default(), Overlap::Allow, Duration::ZERO, bounds);
    player.job.run.starts = 3;
    player.now = at(60);
    player.tick();
    assert!(matches!(player.state(60), State::Skipped { detail, .. } if detail.contains("max_runs")));
    assert_eq!(player.job.run.next, None);
}

fn arb_rule() -> impl Strategy<Value = Misfire> {
    let policy = prop::sample::select(MisfirePolicy::ALL.to_vec());
    let cap = prop_oneof![1u32..20, Just(1_000)];
    (policy, 0u64..2_000, cap).prop_map(|(policy, deadline, cap)| Misfire { cap, ..rule(policy, deadline) })
}

/// What should run after an outage, counted the slow way.
fn expected(player: &Player, now: Timestamp) -> BTreeSet<Timestamp> {
    let misfire = player.job.misfire;
    let table = player.table();
    let mut due = Vec::new();
    let mut slot = table.first(at(0));
    while let Some(this) = slot.filter(|slot| table.due(*slot) <= now) {
        due.push(this);
        slot = table.after(this);
    }
    let late = |slot: &Timestamp| now.saturating_since(table.due(*slot));
    let one_is_late = due.first().is_some_and(|first| late(first) > LATE_GRACE);
    let mut runs: BTreeSet<_> = due.into_iter().filter(|slot| late(slot) <= misfire.lateness_max()).collect();
    let most = match misfire.policy {
        MisfirePolicy::RunAll => misfire.cap as usize,
        MisfirePolicy::RunLatest if one_is_late => 1,
        MisfirePolicy::RunLatest | MisfirePolicy::Skip => usize::MAX,
    };
    while runs.len() > most {
        runs.pop_first();
    }
    let max = player.job.bounds.max_runs.map_or(usize::MAX, |max| max as usize);
    runs.into_iter().take(max).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// An outage of any length over a job of any period: every slot is queued, or skipped, or in a missed stretch, and none twice.
    #[test]
    fn an_outage_accounts_for_every_slot(
        cron in prop::sample::select(vec!["* * * * * *", "*/5 * * * * *", "*/10 * * * * *", "* * * * *", "0,1,30 * * * *"]),
        outage in 0i64..8_000,
        misfire in arb_rule(),
        splay in prop_oneof![Just(0u64), 1u64..4_000],
        end in prop_oneof![Just(None), (0i64..9_000).prop_map(Some)],
        max_runs in prop_oneof![3 => Just(None), 1 => (1u64..30).prop_map(Some)],
    ) {
        let bounds = Bounds { starts_at: None, ends_at: end.map(|end| at(4_000 + end)), max_runs };
        let mut player = Player::within(cron, misfire, Overlap::Allow, Duration::from_secs(splay), bounds);
        let now = at(outage);
        let expected = expected(&player, now);
        player.now = now;
        player.tick();
        let queued: BTreeSet<_> = player.queued.iter().map(|(slot, _)| *slot).collect();
        prop_assert_eq!(queued.len(), player.queued.len(), "a slot was queued twice");
        prop_assert_eq!(&queued, &expected);
        for (slot, _) in &player.queued {
            prop_assert!(player.table().due(*slot) <= now, "early");
        }
        prop_assert!(player.missed.len() <= 1, "an outage is one stretch");
        prop_assert_eq!(player.job.run.starts, queued.len() as u64);
        prop_assert!(player.decided <= 2 * queued.len() + 2, "{} decisions", player.decided);
        let used_up = player.table().is_used_up(player.job.run.starts);
        for (slot, account) in player.accounts() {
            let right = match account {
                "queued" => queued.contains(&slot),
                "planned" => player.table().due(slot) > now,
                "beyond" => used_up,
                other => ["missed", "misfire"].contains(&other),
            };
            prop_assert!(right, "{slot} is {account}");
        }
    }
}
