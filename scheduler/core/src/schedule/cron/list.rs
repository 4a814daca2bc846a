//! One field of numbers: `*`, values, ranges, steps and lists of them. The day fields add their own forms on top (`day_fields`).

use super::error::{CronError, CronField, quoted};

/// What a field of numbers may contain.
#[derive(Clone, Copy)]
pub(super) struct FieldSpec {
    pub(super) field: CronField,
    pub(super) min: u32,
    pub(super) max: u32,
    /// Three-letter names; the first one stands for `min`.
    pub(super) names: &'static [&'static str],
}

pub(super) const SECOND: FieldSpec = FieldSpec { field: CronField::Second, min: 0, max: 59, names: &[] };
pub(super) const MINUTE: FieldSpec = FieldSpec { field: CronField::Minute, min: 0, max: 59, names: &[] };
pub(super) const HOUR: FieldSpec = FieldSpec { field: CronField::Hour, min: 0, max: 23, names: &[] };
pub(super) const DAY_OF_MONTH: FieldSpec = FieldSpec { field: CronField::DayOfMonth, min: 1, max: 31, names: &[] };
pub(super) const MONTH: FieldSpec = FieldSpec {
    field: CronField::Month,
    min: 1,
    max: 12,
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
};
/// Sunday is 0 and 7; `max` counts each weekday once, and [`FieldSpec::value`] lets the 7 pass.
pub(super) const DAY_OF_WEEK: FieldSpec = FieldSpec {
    field: CronField::DayOfWeek,
    min: 0,
    max: 6,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
};
pub(super) const YEAR: FieldSpec = FieldSpec { field: CronField::Year, min: 1970, max: 9999, names: &[] };

/// Sunday as the end of a week.
const SUNDAY_LAST: u32 = 7;

impl FieldSpec {
    pub(super) fn refuse(&self, detail: impl Into<String>, hint: impl Into<String>) -> CronError {
        CronError::malformed(self.field, detail, hint)
    }

    /// What a value may be, for hints.
    pub(super) fn allowed(&self) -> String {
        match self.names {
            [] => format!("use a number from {} to {}", self.min, self.max),
            [first, .., last] if self.field == CronField::DayOfWeek => {
                format!("use a number from 0 to 7 (0 and 7 are Sunday) or a name from {first} to {last}")
            }
            [first, .., last] => {
                format!("use a number from {} to {} or a name from {first} to {last}", self.min, self.max)
            }
            [only] => format!("use {only}"),
        }
    }

    fn is_weekday(&self) -> bool {
        self.field == CronField::DayOfWeek
    }

    /// Reads a whole field and hands every value of it to `add`. Repeated values are handed on repeatedly.
    pub(super) fn read(&self, text: &str, add: &mut impl FnMut(u32)) -> Result<(), CronError> {
        text.split(',').try_for_each(|item| self.read_item(item, text, add))
    }

    /// Reads one item of a list. `whole` is the field it stands in, for messages.
    pub(super) fn read_item(&self, item: &str, whole: &str, add: &mut impl FnMut(u32)) -> Result<(), CronError> {
        if item.is_empty() {
            return Err(self.refuse(
                format!("{} has an empty item", quoted(whole)),
                "put a value on both sides of every comma".to_owned(),
            ));
        }
        let (base, step) = match item.split_once('/') {
            None => (item, None),
            Some((base, step)) => (base, Some(self.step(step, item)?)),
        };
        let (low, high) = self.range(base, item, step)?;
        (low..=high).step_by(step.unwrap_or(1) as usize).for_each(|value| {
            add(if self.is_weekday() { value % SUNDAY_LAST } else { value });
        });
        Ok(())
    }

    /// The first and last value that an item without its step stands for.
    fn range(&self, base: &str, item: &str, step: Option<u32>) -> Result<(u32, u32), CronError> {
        if base == "*" {
            return Ok((self.min, self.max));
        }
        let Some((low_text, high_text)) = base.split_once('-') else {
            let low = self.value(base, item)?;
            // `5/15` counts from 5 to the end of the field.
            return Ok((low, if step.is_some() { self.max.max(low) } else { low }));
        };
        if low_text.is_empty() || high_text.is_empty() || high_text.contains('-') {
            return Err(self.refuse(
                format!("{} is not a range", quoted(item)),
                format!("write first-last, and {}", self.allowed()),
            ));
        }
        let low = self.value(low_text, item)?;
        let mut high = self.value(high_text, item)?;
        // SAT-SUN ends with the week's Sunday; SUN-SUN is one day, not eight.
        if self.is_weekday() && high == 0 && low > 0 && high_text.eq_ignore_ascii_case("SUN") {
            high = SUNDAY_LAST;
        }
        if low > high {
            return Err(self.refuse(
                format!("the range {} runs backwards", quoted(base)),
                self.unwrapped((low_text, low), (high_text, high), step),
            ));
        }
        Ok((low, high))
    }

    /// How to spell a range that wraps around the end of its field.
    fn unwrapped(&self, (low_text, low): (&str, u32), (high_text, high): (&str, u32), step: Option<u32>) -> String {
        if let Some(step) = step {
            let mut values: Vec<u32> = (low..=self.max + 1 + high - self.min)
                .step_by(step as usize)
                .map(|value| if value > self.max { value - self.max - 1 + self.min } else { value })
                .collect();
            values.sort_unstable();
            values.dedup();
            let values: Vec<String> = values.iter().map(u32::to_string).collect();
            return format!("if it is meant to wrap, write {}", quoted(&values.join(",")));
        }
        let named = !low_text.starts_with(|c: char| c.is_ascii_digit());
        let name = |value: u32| match self.names.get((value % (self.max + 1)).saturating_sub(self.min) as usize) {
            Some(name) if named => (*name).to_owned(),
            _ => value.to_string(),
        };
        let join = |first: &str, low: u32, last: &str, high: u32| {
            if low == high { first.to_owned() } else { format!("{first}-{last}") }
        };
        // A week wraps at the Sunday that both ends know: `5-1` is `5-7,1`.
        let (end, start) = if self.is_weekday() { (SUNDAY_LAST, 1) } else { (self.max, self.min) };
        if self.is_weekday() && (low == SUNDAY_LAST || high == 0) {
            let spelling = if low == SUNDAY_LAST { format!("0-{high_text}") } else { format!("{low_text}-{end}") };
            return format!("if it is meant to wrap, write {}", quoted(&spelling));
        }
        let tail = join(low_text, low, &name(end), end);
        let head = join(&name(start), start, high_text, high);
        format!("if it is meant to wrap, write {}", quoted(&format!("{tail},{head}")))
    }

    /// The step after a `/`.
    fn step(&self, text: &str, item: &str) -> Result<u32, CronError> {
        let count = self.max - self.min + 1;
        let hint = format!("use a whole number from 1 to {count} after the `/`");
        match number(text) {
            Number::Value(step) if (1..=count).contains(&step) => Ok(step),
            Number::Value(0) => Err(self.refuse(format!("{} has a step of 0", quoted(item)), hint)),
            Number::Value(_) | Number::TooLarge => Err(self
                .refuse(format!("{} has a step larger than the field, so it would never advance", quoted(item)), hint)),
            Number::None => {
                Err(self.refuse(format!("the step in {} is {}", quoted(item), missing_or_not_number(text)), hint))
            }
        }
    }

    /// A single number or name.
    pub(super) fn value(&self, text: &str, item: &str) -> Result<u32, CronError> {
        let max = if self.is_weekday() { SUNDAY_LAST } else { self.max };
        match number(text) {
            Number::Value(value) if (self.min..=max).contains(&value) => Ok(value),
            Number::Value(_) | Number::TooLarge => {
                Err(self.refuse(format!("{} is out of range", quoted(text)), self.allowed()))
            }
            Number::None => {
                let index = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
                index.map(|index| self.min + index as u32).ok_or_else(|| self.unreadable(text, item))
            }
        }
    }

    /// The refusal of something that is neither a number nor a name, with the hint that fits the likely intent.
    fn unreadable(&self, text: &str, item: &str) -> CronError {
        let shown = quoted(if text.is_empty() { item } else { text });
        if text.strip_prefix(['H', 'h']).is_some_and(|rest| rest.is_empty() || rest.starts_with('(')) {
            return self.refuse(
                format!("{} (a value picked by hash) is not part of this dialect", quoted(item)),
                "give a fixed value and spread the jobs with `splay`",
            );
        }
        if text == "?" {
            return self.refuse("`?` is only for the day fields, alone".to_owned(), "write `*`");
        }
        if let Some(name) = self.names.iter().find(|name| is_long_form(text, name)) {
            return self.refuse(format!("{shown} is not a name"), format!("names have three letters: {name}"));
        }
        let detail = if self.names.is_empty() { "is not a number" } else { "is neither a number nor a name" };
        self.refuse(format!("{shown} {detail}"), self.allowed())
    }
}

/// `MONDAY` for `MON`: a word of letters that begins with the name.
fn is_long_form(text: &str, name: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphabetic())
        && text.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name))
}

fn missing_or_not_number(text: &str) -> &'static str {
    if text.is_empty() { "missing" } else { "not a number" }
}

pub(super) enum Number {
    Value(u32),
    TooLarge,
    None,
}

/// Reads ASCII digits and nothing else: no sign, no blank, no other script's digits.
pub(super) fn number(text: &str) -> Number {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Number::None;
    }
    text.parse().map_or(Number::TooLarge, Number::Value)
}
