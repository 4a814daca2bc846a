//! Slots that come while earlier executions of their job are live.

use std::num::NonZeroU32;
use std::time::Duration;

use compline_core::execution::State;
use compline_core::job::{JobState, Misfire, Overlap};
use compline_core::ledger::SkipReason;
use proptest::prelude::*;

use crate::player::{Player, at};

fn up_to(max: u32) -> Overlap {
    Overlap::AllowUpTo(NonZeroU32::new(max).expect("a number"))
}

/// `* * * * *`; every run takes 150 s. Played second by second up to `until`.
fn c40(overlap: Overlap, until: i64) -> Player {
    let mut player = Player::new("* * * * *", Misfire::default(), overlap);
    let mut started = Vec::new();
    for second in 0..=until {
        player.now = at(second);
        let over: Vec<_> = started.iter().filter(|(_, begun)| *begun + 150 == second).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| player.finish(id, None));
        player.tick();
        for id in player.live.clone() {
            if !started.iter().any(|(known, _)| *known == id) {
                player.claim(id);
                started.push((id, second));
            }
        }
    }
    player
}

fn starts(player: &Player) -> Vec<(i64, i64)> {
    let seconds = |at: compline_core::Timestamp| at.timestamp() - crate::player::at(0).timestamp();
    player.queued.iter().map(|(slot, now)| (seconds(*slot), seconds(*now))).collect()
}

fn is_skipped(player: &Player, slot: i64) -> bool {
    matches!(player.state(slot), State::Skipped { reason: SkipReason::Overlap, .. })
}

#[test]
fn c40_skip_leaves_out_what_comes_while_one_runs() {
    // 00:01 runs until 00:03:30, so 00:02 and 00:03 are skipped, and 00:04 is next.
    let player = c40(Overlap::Skip, 500);
    assert_eq!(starts(&player), [(60, 60), (240, 240), (420, 420)]);
    assert!([120, 180, 300, 360].iter().all(|slot| is_skipped(&player, *slot)));
}

#[test]
fn c40_buffer_one_runs_the_newest_as_soon_as_the_other_has_ended() {
    let player = c40(Overlap::BufferOne, 500);
    assert_eq!(starts(&player), [(60, 60), (180, 210), (300, 360)]);
    assert!([120, 240].iter().all(|slot| is_skipped(&player, *slot)), "their places were taken");
}

#[test]
fn c40_buffer_all_runs_one_after_the_other_in_order() {
    let player = c40(Overlap::BufferAll, 700);
    assert_eq!(starts(&player), [(60, 60), (120, 210), (180, 360), (240, 510), (300, 660)]);
    assert_eq!(player.waiting.len(), 6, "the rest waits, each slot once");
}

#[test]
fn c40_allow_runs_as_many_as_it_may_and_the_rest_waits_once() {
    let player = c40(up_to(2), 400);
    assert_eq!(starts(&player), [(60, 60), (120, 120), (180, 210), (240, 270), (300, 360)]);
    assert_eq!(starts(&c40(Overlap::Allow, 400)).len(), 6);
}

#[test]
fn c40_terminate_other_ends_the_one_that_runs_and_starts_at_once() {
    let player = c40(Overlap::TerminateOther, 200);
    assert_eq!(starts(&player), [(60, 60), (120, 120), (180, 180)]);
    for slot in [60, 120] {
        assert!(matches!(player.state(slot), State::Cancelled { reason, .. } if reason.contains("terminate_other")));
    }
}

#[test]
fn c40_cancel_other_asks_the_one_that_runs_and_starts_when_it_has_ended() {
    let mut player = c40(Overlap::CancelOther, 120);
    assert_eq!(starts(&player), [(60, 60)]);
    let live = player.live[0];
    assert!(matches!(player.state(60), State::Running(running) if running.stop.is_some()), "it is asked, once");
    assert!(matches!(player.state(120), State::Waiting { .. }));
    // It takes its time, and a newer slot comes: that one is meant now.
    player.now = at(180);
    player.tick();
    assert!(is_skipped(&player, 120));
    player.now = at(185);
    player.finish(live, None);
    player.tick();
    assert_eq!(starts(&player), [(60, 60), (180, 185)]);
}

#[test]
fn cancel_other_ends_what_only_waits_for_a_worker_or_for_its_next_try_at_once() {
    for retries in [false, true] {
        let mut player = Player::new("* * * * *", Misfire::default(), Overlap::CancelOther);
        player.now = at(60);
        player.tick();
        if retries {
            player.finish(player.live[0], Some(at(600)));
            assert!(matches!(player.state(60), State::Retrying { .. }));
        }
        player.now = at(120);
        player.tick();
        assert!(matches!(player.state(60), State::Cancelled { .. }));
        assert_eq!(starts(&player), [(60, 60), (120, 120)]);
        assert!(player.due.iter().all(|(due, _)| *due == at(180)), "only the next slot is due: {:?}", player.due);
    }
}

#[test]
fn an_execution_that_waits_for_its_next_try_is_live() {
    let mut player = Player::new("* * * * *", Misfire::default(), Overlap::Skip);
    player.now = at(60);
    player.tick();
    player.finish(player.live[0], Some(at(130)));
    player.now = at(120);
    player.tick();
    assert!(is_skipped(&player, 120));
    player.now = at(130);
    player.tick();
    assert!(matches!(player.state(60), State::Queued(_)), "the try itself is not blocked");
    player.finish(player.live[0], None);
    player.now = at(180);
    player.tick();
    assert!(matches!(player.state(180), State::Queued(_)));
}

#[test]
fn what_somebody_asks_for_waits_where_a_slot_would_be_dropped() {
    for overlap in [Overlap::Skip, Overlap::BufferOne] {
        let mut player = Player::new("* * * * *", Misfire::default(), overlap);
        player.now = at(60);
        player.tick();
        let first = player.live[0];
        player.now = at(70);
        let asked = player.trigger();
        player.tick();
        player.now = at(120);
        player.tick();
        assert!(matches!(player.executions[&asked].state, State::Waiting { .. }), "no slot takes its place");
        player.finish(first, None);
        player.tick();
        assert_eq!(player.live, [asked]);
        assert_eq!(player.job.run.starts, if overlap == Overlap::Skip { 1 } else { 2 }, "it moves no schedule");
    }
}

#[test]
fn what_is_redriven_waits_where_a_slot_would_be_dropped() {
    for overlap in [Overlap::Skip, Overlap::BufferOne] {
        let mut player = Player::new("* * * * *", Misfire::default(), overlap);
        player.now = at(60);
        player.tick();
        let redriven = player.live[0];
        player.now = at(119);
        player.fail_and_redrive(redriven);
        // By the time that a tick comes the next slot is live.
        player.due.remove(&(at(119), redriven));
        player.now = at(120);
        player.tick();
        player.due.insert((at(119), redriven));
        let second = player.live[0];
        player.tick();
        player.now = at(180);
        player.tick();
        assert!(
            matches!(player.executions[&redriven].state, State::Waiting { .. }),
            "no slot takes its place: {overlap:?}"
        );
        player.finish(second, None);
        player.tick();
        assert_eq!(player.live, [redriven]);
    }
}

#[test]
fn a_slot_that_takes_a_place_is_not_counted_twice() {
    let mut player = Player::new("* * * * *", Misfire::default(), Overlap::BufferOne);
    player.job.bounds.max_runs = Some(3);
    for minute in 1..=5 {
        player.now = at(minute * 60);
        player.tick();
    }
    assert_eq!((player.job.run.starts, player.waiting.len()), (2, 1));
    player.finish(player.live[0], None);
    player.now = at(360);
    player.tick();
    assert_eq!((player.job.run.starts, player.job.run.next), (3, None), "300 runs, 360 waits, and that is all");
}

#[test]
fn who_waits_when_its_job_is_paused_or_deleted_does_not_run() {
    for (state, name) in [(JobState::Paused, "SKIPPED"), (JobState::Deleted, "CANCELLED")] {
        let mut player = Player::new("* * * * *", Misfire::default(), Overlap::BufferAll);
        player.now = at(200);
        player.tick();
        assert_eq!((player.live.len(), player.waiting.len()), (1, 2));
        player.job.state = state;
        player.finish(player.live[0], None);
        player.tick();
        assert!(player.live.is_empty() && player.waiting.is_empty());
        assert!([120, 180].iter().all(|slot| player.state(*slot).name() == name), "{name}");
    }
}

/// What happens next, in a random life.
#[derive(Debug, Clone)]
enum Step {
    Pass(u8),
    End(prop::sample::Index),
    Retry(prop::sample::Index, u8),
    Trigger,
    Rule(Overlap),
}

fn arb_overlap() -> impl Strategy<Value = Overlap> {
    prop_oneof![
        Just(Overlap::Allow),
        (1u32..4).prop_map(up_to),
        Just(Overlap::Skip),
        Just(Overlap::BufferOne),
        Just(Overlap::BufferAll),
        Just(Overlap::CancelOther),
        Just(Overlap::TerminateOther),
    ]
}

fn arb_step(edits: bool) -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any::<u8>().prop_map(Step::Pass),
        6 => any::<prop::sample::Index>().prop_map(Step::End),
        2 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(which, delay)| Step::Retry(which, delay)),
        2 => Just(Step::Trigger),
        u32::from(edits) => arb_overlap().prop_map(Step::Rule),
    ]
}

/// Waiting executions of the schedule.
fn waiting_slots(player: &Player) -> Vec<compline_core::Timestamp> {
    let of_schedule =
        player.waiting.iter().filter(|id| player.executions[id].cause == compline_core::execution::Cause::Schedule);
    of_schedule.map(|id| player.executions[id].slot).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    /// Whatever comes in whatever order, the rule holds, and nobody waits for nothing.
    #[test]
    fn no_more_are_live_than_the_rule_allows(overlap in arb_overlap(), steps in prop::collection::vec(arb_step(false), 1..120)) {
        let mut player = Player::new("*/20 * * * * *", Misfire::default(), overlap);
        for step in steps {
            play(&mut player, step);
            let max = overlap.live_max().map_or(usize::MAX, |max| max as usize);
            prop_assert!(player.live.len() <= max, "{} are live under {overlap:?}", player.live.len());
            prop_assert!(player.waiting.is_empty() || player.live.len() == max, "somebody waits for nothing");
            let slots = waiting_slots(&player);
            let allowed = match overlap {
                Overlap::Allow | Overlap::Skip | Overlap::TerminateOther => 0,
                Overlap::BufferOne | Overlap::CancelOther => 1,
                Overlap::AllowUpTo(_) | Overlap::BufferAll => usize::MAX,
            };
            prop_assert!(slots.len() <= allowed, "{slots:?} wait under {overlap:?}");
            prop_assert!(slots.is_sorted());
            player.accounts();
        }
    }

    /// Edits of the rule strand nobody: once all that is live has ended, and what that lets go on, nothing waits.
    #[test]
    fn a_rule_that_changes_strands_nobody(overlap in arb_overlap(), steps in prop::collection::vec(arb_step(true), 1..80)) {
        let mut player = Player::new("*/20 * * * * *", Misfire::default(), overlap);
        for step in steps {
            play(&mut player, step);
        }
        for _ in 0..200 {
            let Some(first) = player.live.first().copied() else { break };
            if let State::Retrying { due } = player.executions[&first].state {
                player.now = player.now.max(due);
                player.tick();
            }
            player.finish(first, None);
            player.tick();
        }
        prop_assert!(player.waiting.is_empty() || !player.live.is_empty(), "{} wait for nothing", player.waiting.len());
    }
}

fn play(player: &mut Player, step: Step) {
    let pick = |player: &Player, which: prop::sample::Index| {
        (!player.live.is_empty()).then(|| player.live[which.index(player.live.len())])
    };
    match step {
        Step::Pass(seconds) => player.now = player.now + Duration::from_secs(u64::from(seconds % 50)),
        Step::End(which) => {
            if let Some(id) = pick(player, which) {
                player.finish(id, None);
            }
        }
        Step::Retry(which, delay) => {
            if let Some(id) = pick(player, which) {
                let due = player.now + Duration::from_secs(u64::from(delay));
                player.finish(id, Some(due));
            }
        }
        Step::Trigger => {
            player.trigger();
        }
        Step::Rule(overlap) => player.job.overlap = overlap,
    }
    player.tick();
}
