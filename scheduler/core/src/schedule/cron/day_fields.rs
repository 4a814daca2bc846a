//! The two day fields: numbers as everywhere, and `L`, `LW`, `L-n`, `nW` for days of the month, `d#n` and `dL` for weekdays.

use super::days::DayRule;
use super::error::{CronError, quoted};
use super::list::{DAY_OF_MONTH, DAY_OF_WEEK, Number, number};

/// Reads both day fields and the rule that joins them: a field that begins with `*` or `?` must match as well, otherwise a day needs to
/// match only one of the two (cronie and its family).
pub(super) fn read(day_of_month: &str, day_of_week: &str) -> Result<DayRule, CronError> {
    let is_open = |text: &str| text.starts_with(['*', '?']);
    let mut rule = DayRule { both: is_open(day_of_month) || is_open(day_of_week), ..DayRule::default() };
    read_days_of_month(day_of_month, &mut rule)?;
    read_weekdays(day_of_week, &mut rule)?;
    Ok(rule)
}

fn read_days_of_month(text: &str, rule: &mut DayRule) -> Result<(), CronError> {
    let every_day = if text == "?" { "*" } else { text };
    for item in every_day.split(',') {
        let upper = item.to_ascii_uppercase();
        if upper == "L" {
            rule.before_last |= 1;
        } else if upper == "LW" {
            rule.last_workday = true;
        } else if let Some(back) = upper.strip_prefix("L-") {
            match number(back) {
                Number::Value(back @ 1..=30) => rule.before_last |= 1 << back,
                _ => {
                    return Err(DAY_OF_MONTH.refuse(
                        format!("{} does not count days before the last", quoted(item)),
                        "use `L` for the last day, or `L-1` to `L-30`",
                    ));
                }
            }
        } else if let Some(day) = upper.strip_suffix('W') {
            match number(day) {
                Number::Value(day @ 1..=31) => rule.near_workday |= 1 << day,
                _ => {
                    return Err(DAY_OF_MONTH.refuse(
                        format!("{} has no day that a workday could be near", quoted(item)),
                        "use `1W` to `31W`, or `LW` for the last workday",
                    ));
                }
            }
        } else {
            DAY_OF_MONTH.read_item(item, text, &mut |day| rule.days |= 1 << day)?;
        }
    }
    Ok(())
}

fn read_weekdays(text: &str, rule: &mut DayRule) -> Result<(), CronError> {
    let every_day = if text == "?" { "*" } else { text };
    for item in every_day.split(',') {
        if let Some((day, nth)) = item.split_once('#') {
            let Number::Value(nth @ 1..=5) = number(nth) else {
                return Err(DAY_OF_WEEK.refuse(
                    format!("{} asks for an occurrence that no month has", quoted(item)),
                    "use `#1` to `#5`, such as `MON#1` for the first Monday",
                ));
            };
            rule.nth[nth as usize - 1] |= 1 << weekday(day, item)?;
        } else if let Some(day) = item.strip_suffix(['L', 'l']) {
            if day.is_empty() {
                return Err(DAY_OF_WEEK.refuse(
                    "`L` alone does not say which weekday".to_owned(),
                    "write `FRIL` or `5L` for the last Friday of the month, `SAT` for every Saturday",
                ));
            }
            rule.last_of |= 1 << weekday(day, item)?;
        } else {
            DAY_OF_WEEK.read_item(item, text, &mut |day| rule.weekdays |= 1 << day)?;
        }
    }
    Ok(())
}

/// The single weekday in front of a `#` or an `L`.
fn weekday(day: &str, item: &str) -> Result<u32, CronError> {
    Ok(DAY_OF_WEEK.value(day, item)? % 7)
}
