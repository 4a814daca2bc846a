//! Where `data/bike-counts.csv` comes from: a made-up city's hourly bicycle counts, in integers only, so that every machine makes the
//! same bytes. Four counters, sixty days from 2026-03-01, one line per counter and hour.
//!
//! A count is the counter's usual traffic by hour of the day, times the weekday's and the weather's share, give or take a tenth. Added
//! to that are what a report should find: a stadium match, a bridge closed for a day, and a counter that reported nonsense once.

use std::fmt::Write;

const DAYS: u32 = 60;
const STATIONS: [(&str, u32); 4] =
    [("Harbour Bridge", 310), ("Market Street", 240), ("North Park", 95), ("University", 180)];
/// Traffic by hour of the day, in percent of the busiest.
const WEEKDAY: [u32; 24] = [3, 2, 1, 1, 2, 8, 28, 71, 100, 62, 38, 36, 41, 43, 42, 49, 70, 98, 84, 52, 33, 22, 14, 7];
const WEEKEND: [u32; 24] = [9, 7, 5, 3, 2, 3, 6, 12, 21, 34, 47, 56, 61, 63, 64, 61, 55, 47, 38, 29, 21, 17, 14, 11];

/// The whole file.
pub fn csv() -> String {
    let mut text = "hour,station,count,temperature_c\n".to_owned();
    let mut noise = Noise(0x2026_0301);
    for day in 0..DAYS {
        let weather = i32::try_from(noise.below(9)).unwrap_or_default() - 4;
        let raining = noise.below(10) < 3;
        for hour in 0..24 {
            let tenths = temperature_tenths(day, hour, weather);
            for (index, (station, busiest)) in STATIONS.iter().enumerate() {
                let count = event(day, hour, index).unwrap_or_else(|| usual(&mut noise, day, hour, *busiest, raining));
                let sign = if tenths < 0 { "-" } else { "" };
                let _ = writeln!(
                    text,
                    "{}T{hour:02}:00Z,{station},{count},{sign}{}.{}",
                    date(day),
                    tenths.abs() / 10,
                    tenths.abs() % 10
                );
            }
        }
    }
    text
}

fn usual(noise: &mut Noise, day: u32, hour: u32, busiest: u32, raining: bool) -> u32 {
    // 2026-03-01 is a Sunday.
    let profile = if matches!(day % 7, 0 | 6) { WEEKEND } else { WEEKDAY };
    let weather = if raining { 55 } else { 100 };
    let spring = 80 + day * 2 / 3;
    let expected = busiest * profile[hour as usize] * weather / 100 * spring / 10_000;
    expected * (90 + noise.below(21)) / 100
}

/// What is not as usual: a match at the stadium, a closed bridge, a broken counter.
fn event(day: u32, hour: u32, station: usize) -> Option<u32> {
    match (day, hour, station) {
        (41, 17..=19, 3) => Some([1480, 1125, 890][(hour - 17) as usize]),
        (23, _, 0) => Some(0),
        (50, 3, 2) => Some(9999),
        _ => None,
    }
}

fn temperature_tenths(day: u32, hour: u32, weather: i32) -> i32 {
    let season = 40 + i32::try_from(day).unwrap_or_default() * 2;
    let of_day = 60 - (i32::try_from(hour).unwrap_or_default() - 15).abs() * 8;
    season + of_day + weather * 10
}

fn date(day: u32) -> String {
    match day {
        0..=30 => format!("2026-03-{:02}", day + 1),
        _ => format!("2026-04-{:02}", day - 30),
    }
}

/// xorshift32: enough for noise, and the same everywhere.
struct Noise(u32);

impl Noise {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % limit
    }
}
