//! From text to fields: macros, the number of fields, each field, and the refusal of what can never fire.

use super::day_fields;
use super::error::{CronError, CronField, quoted};
use super::fields::{Fields, YearSet, Years};
use super::list::{FieldSpec, HOUR, MINUTE, MONTH, SECOND, YEAR};

/// The longest text that is read, in characters.
pub const CRON_CHARS_MAX: usize = 256;

const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
const MACRO_NAMES: &str = "use @yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly";
const FIELD_COUNTS: &str = "write five fields (minute, hour, day of month, month, day of week), six with seconds in front, or seven with \
                            seconds in front and the year at the end";

pub(super) fn parse(text: &str) -> Result<Fields, CronError> {
    let chars = text.chars().take(CRON_CHARS_MAX + 1).count();
    if chars > CRON_CHARS_MAX {
        return Err(whole(format!("longer than {CRON_CHARS_MAX} characters"), "split it into several jobs"));
    }
    let trimmed = text.trim_ascii();
    let expanded = if trimmed.starts_with('@') { expand(trimmed)? } else { trimmed };
    let columns: Vec<&str> = expanded.split([' ', '\t']).filter(|column| !column.is_empty()).collect();
    refuse_assignment(&columns)?;
    let (second, five, year) = match columns.as_slice() {
        five if five.len() == 5 => ("0", five, "*"),
        [.., last] if columns.len() == 6 && looks_like_year(last) => return Err(year_in_sixth_place(&columns)),
        [second, five @ ..] if five.len() == 5 => (*second, five, "*"),
        [second, five @ .., year] if five.len() == 5 => (*second, five, *year),
        [] => return Err(whole("the text is empty", FIELD_COUNTS)),
        [_] => return Err(whole("found 1 field", FIELD_COUNTS)),
        _ => return Err(whole(format!("found {} fields", columns.len()), FIELD_COUNTS)),
    };
    let fields = Fields {
        seconds: bits(&SECOND, second)?,
        minutes: bits(&MINUTE, five[0])?,
        hours: bits(&HOUR, five[1])? as u32,
        days: day_fields::read(five[2], five[4])?,
        months: bits(&MONTH, five[3])? as u16,
        years: Years::OfKind(0),
        wildcard: [second, five[0], five[1]].iter().any(|field| field.starts_with('*')),
    };
    with_years(fields, year, five)
}

/// Fills in the years in which something matches; none of them is a refusal.
fn with_years(mut fields: Fields, year: &str, five: &[&str]) -> Result<Fields, CronError> {
    let mut listed = YearSet::empty();
    if year != "*" {
        YEAR.read(year, &mut |year| listed.insert(year as i32))?;
    }
    let mut kinds = 0_u16;
    for kind in 0..14 {
        if fields.days.matches_in(kind >= 7, kind % 7, fields.months) {
            kinds |= 1 << kind;
        }
    }
    if kinds == 0 {
        return Err(CronError::never(
            CronField::DayOfMonth,
            format!(
                "it never fires: day of month {}, month {} and day of week {} never meet",
                quoted(five[2]),
                quoted(five[3]),
                quoted(five[4])
            ),
            "choose a day that one of the months has; `L` is the last day of every month",
        ));
    }
    if year == "*" {
        fields.years = Years::OfKind(kinds);
        return Ok(fields);
    }
    listed.keep_kinds(kinds);
    if listed.is_empty() {
        return Err(CronError::never(
            CronField::Year,
            format!("it never fires: no year in {} has such a day", quoted(year)),
            "choose a year that has the day (29 February needs a leap year), or write `*`",
        ));
    }
    fields.years = Years::Listed(Box::new(listed));
    Ok(fields)
}

fn bits(spec: &FieldSpec, text: &str) -> Result<u64, CronError> {
    let mut mask = 0_u64;
    spec.read(text, &mut |value| mask |= 1 << value)?;
    Ok(mask)
}

fn expand(text: &str) -> Result<&'static str, CronError> {
    let name = text.split([' ', '\t']).next().unwrap_or(text);
    if let Some((_, expansion)) = MACROS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        return Ok(expansion);
    }
    if name.eq_ignore_ascii_case("@reboot") {
        return Err(whole(
            "`@reboot` has no meaning here: a job belongs to no single machine that could boot",
            "create a job of type NOW, or give it a time",
        ));
    }
    if name.eq_ignore_ascii_case("@every") {
        return Err(whole(
            "`@every` would depend on when it was first asked for",
            "write it against the clock, such as `*/5 * * * *` for every 5 minutes",
        ));
    }
    Err(whole(format!("{} is not a macro", quoted(text)), MACRO_NAMES))
}

/// `TZ=…` in front of the fields is common elsewhere; here the zone has a field of its own.
fn refuse_assignment(columns: &[&str]) -> Result<(), CronError> {
    match columns.iter().find(|column| column.contains('=')) {
        None => Ok(()),
        Some(column) => Err(whole(
            format!("{} is not part of a cron expression", quoted(column)),
            "give the zone as `time_zone` (`--tz`), and only the fields here",
        )),
    }
}

fn looks_like_year(column: &str) -> bool {
    let head = column.split(['-', ',', '/']).next().unwrap_or(column);
    head.len() == 4 && head.bytes().all(|byte| byte.is_ascii_digit()) && !head.starts_with('0')
}

fn year_in_sixth_place(columns: &[&str]) -> CronError {
    CronError::malformed(
        CronField::Year,
        "six fields begin with seconds and have no year",
        format!("put the seconds in front, as in {}", quoted(&format!("0 {}", columns.join(" ")))),
    )
}

fn whole(detail: impl Into<String>, hint: impl Into<String>) -> CronError {
    CronError::malformed(CronField::Expression, detail, hint)
}
