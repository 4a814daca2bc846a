//! What befalls nodes: crash, freeze, partition, clean stop, a wall clock that is set by hours and back before it is believed; each by the seed,
//! on any number of nodes at once.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use compline_server::env::DISBELIEF;

use super::node::SimNode;
use super::world::World;

/// Strikes one node again and again until the active part of the run is over, and leaves it in good health.
pub async fn befall(
    world: Arc<World>,
    mut node: SimNode,
    mut rng: fastrand::Rng,
    until: tokio::time::Instant,
) -> SimNode {
    node.start();
    let shape = world.shape.clone();
    let began = tokio::time::Instant::now();
    let mut outage = shape.outage.filter(|_| node.schedules()).map(|(from, length)| (began + from, length));
    // A node is struck as often as all nodes together are to be, divided by their number.
    let share = shape.nodes.len() as f64;
    loop {
        let pause = between(&mut rng, shape.blows_every.start, shape.blows_every.end).mul_f64(share);
        let strikes = tokio::time::Instant::now() + pause;
        if let Some((from, length)) = outage.take_if(|(from, _)| *from <= strikes) {
            // No scheduler at all for a while: they are hit at one time, each as soon as what befell it before is over.
            tokio::time::sleep_until(from).await;
            node.crash();
            tokio::time::sleep_until(from + length).await;
            node.start();
            world.record.lock().events.outages += 1;
            continue;
        }
        if tokio::time::timeout_at(until, tokio::time::sleep(pause)).await.is_err() {
            // The newest data comes to every node in the end: as long as schedulers have older data, zoned jobs rest.
            node.bring_up_to_date().await;
            return node;
        }
        let long = between(&mut rng, shape.beat, shape.session_ttl * 3);
        let past_ttl = u64::from(long > shape.session_ttl);
        match rng.u8(0..12) {
            0..=2 => {
                node.crash();
                world.record.lock().events.crashes += 1;
                // Often it is back before anybody misses it.
                tokio::time::sleep(if rng.bool() { long / 10 } else { long }).await;
                node.start();
                world.record.lock().events.restarts += 1;
            }
            3..=5 => {
                node.freeze();
                tokio::time::sleep(long).await;
                node.thaw();
                let events = &mut world.record.lock().events;
                events.freezes += 1;
                events.freezes_past_ttl += past_ttl;
            }
            6..=8 => {
                node.cut();
                tokio::time::sleep(long).await;
                node.heal();
                let events = &mut world.record.lock().events;
                events.cuts += 1;
                events.cuts_past_ttl += past_ttl;
            }
            9..=10 => {
                let hours = if rng.bool() { 3.0 } else { -3.0 } * rng.f64();
                let by = TimeDelta::seconds(3) * hours.signum() as i32
                    + TimeDelta::milliseconds((hours * 3_600_000.0) as i64);
                node.set_clock_off(by);
                world.record.lock().events.clocks_set += 1;
                tokio::time::sleep(between(&mut rng, shape.beat, DISBELIEF * 9 / 10)).await;
                node.set_clock_off(TimeDelta::zero());
            }
            _ => {
                node.stop().await;
                world.record.lock().events.stops += 1;
                tokio::time::sleep(long / 3).await;
                node.start();
                world.record.lock().events.restarts += 1;
            }
        }
    }
}

fn between(rng: &mut fastrand::Rng, from: Duration, to: Duration) -> Duration {
    from + to.saturating_sub(from).mul_f64(rng.f64())
}
