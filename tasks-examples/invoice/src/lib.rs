//! An invoice in whole cents, and the charge for it. Both are functions of the execution, so that a repeated attempt names the same
//! charge again instead of making a second one.

use std::collections::BTreeMap;

use compline_sdk::{Context, TaskError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// 100 % in basis points.
const WHOLE_BASIS_POINTS: i64 = 10_000;

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Who is charged.
    #[schemars(length(min = 1))]
    customer: String,
    /// The currency, ISO 4217.
    #[serde(default = "eur")]
    #[schemars(length(equal = 3))]
    currency: String,
    #[schemars(length(min = 1))]
    items: Vec<Item>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Item {
    description: String,
    #[schemars(range(min = 1))]
    quantity: u32,
    /// The price of one, without tax. Negative for a credit.
    unit_price_cents: i64,
    /// The tax rate: 1900 is 19 %.
    #[serde(default)]
    #[schemars(range(max = 10_000))]
    tax_basis_points: u16,
}

#[derive(Debug, PartialEq, Serialize)]
struct Invoice {
    number: String,
    customer: String,
    currency: String,
    lines: Vec<Line>,
    net_cents: i64,
    taxes: Vec<Tax>,
    gross_cents: i64,
    charge: Charge,
}

#[derive(Debug, PartialEq, Serialize)]
struct Line {
    description: String,
    net_cents: i64,
}

/// Tax is rounded once per rate, not per line: that is the sum a tax office recomputes.
#[derive(Debug, PartialEq, Serialize)]
struct Tax {
    basis_points: u16,
    net_cents: i64,
    tax_cents: i64,
}

/// What a payment provider is asked for. Providers keep the key, and answer a repeat with the first charge.
#[derive(Debug, PartialEq, Serialize)]
struct Charge {
    idempotency_key: String,
    amount_cents: i64,
}

fn eur() -> String {
    "EUR".to_owned()
}

#[compline_sdk::task]
fn invoice(ctx: &Context, params: Params) -> Result<Invoice, TaskError> {
    check(&params)?;
    let mut lines = Vec::new();
    let mut net_by_rate = BTreeMap::<u16, i64>::new();
    for (index, item) in params.items.iter().enumerate() {
        let net = item.unit_price_cents.checked_mul(item.quantity.into());
        let net_cents = net.ok_or_else(|| too_large(&format!("items[{index}]")))?;
        let rate = net_by_rate.entry(item.tax_basis_points).or_default();
        *rate = rate.checked_add(net_cents).ok_or_else(|| too_large("items"))?;
        lines.push(Line { description: item.description.clone(), net_cents });
    }
    let taxes: Vec<Tax> = net_by_rate.into_iter().map(tax).collect::<Result<_, _>>()?;
    let net_cents = sum(taxes.iter().map(|tax| tax.net_cents))?;
    let gross_cents = sum(taxes.iter().map(|tax| tax.tax_cents).chain([net_cents]))?;
    let charge = Charge { idempotency_key: format!("{}/charge", ctx.execution_id()), amount_cents: gross_cents };
    if ctx.attempt() > 1 {
        ctx.info(format_args!("attempt {}: the same charge {} again", ctx.attempt(), charge.idempotency_key));
    }
    Ok(Invoice {
        number: number(ctx),
        customer: params.customer,
        currency: params.currency,
        lines,
        net_cents,
        taxes,
        gross_cents,
        charge,
    })
}

/// What the schema says too. A run from the command line has not been through it.
fn check(params: &Params) -> Result<(), TaskError> {
    if params.customer.trim().is_empty() {
        return Err(TaskError::permanent("`customer` is empty: name who is charged"));
    }
    if params.currency.len() != 3 || !params.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(TaskError::permanent("`currency` is three capital letters, such as EUR"));
    }
    if params.items.is_empty() {
        return Err(TaskError::permanent("`items` is empty: an invoice has at least one line"));
    }
    if let Some(index) = params.items.iter().position(|item| item.quantity == 0) {
        return Err(TaskError::permanent(format_args!("`items[{index}].quantity` is 0")));
    }
    Ok(())
}

fn tax((basis_points, net_cents): (u16, i64)) -> Result<Tax, TaskError> {
    let scaled = i128::from(net_cents) * i128::from(basis_points);
    let whole = i128::from(WHOLE_BASIS_POINTS);
    // Half a cent goes away from zero, so that a credit note mirrors its invoice to the cent.
    let rounded = (scaled.abs() + whole / 2) / whole * scaled.signum();
    Ok(Tax { basis_points, net_cents, tax_cents: i64::try_from(rounded)? })
}

fn sum(amounts: impl IntoIterator<Item = i64>) -> Result<i64, TaskError> {
    amounts.into_iter().try_fold(0_i64, i64::checked_add).ok_or_else(|| too_large("items"))
}

fn too_large(path: &str) -> TaskError {
    TaskError::permanent(format_args!("`{path}`: the amount does not fit 64 bits of cents"))
}

/// The number is derived, not counted: a counter would give a repeated attempt another one.
fn number(ctx: &Context) -> String {
    let digest = Sha256::digest(ctx.execution_id());
    let serial: String = digest[..6].iter().map(|byte| format!("{byte:02X}")).collect();
    format!("INV-{}-{serial}", ctx.slot().get(..4).unwrap_or("0000"))
}

#[cfg(test)]
mod tests {
    use compline_sdk::ErrorKind;

    use super::*;

    fn item(quantity: u32, unit_price_cents: i64, tax_basis_points: u16) -> Item {
        Item { description: "thing".into(), quantity, unit_price_cents, tax_basis_points }
    }

    fn params(items: Vec<Item>) -> Params {
        Params { customer: "Ada".into(), currency: eur(), items }
    }

    /// A payment provider as they are: it keeps the keys it has seen.
    #[derive(Default)]
    struct Provider {
        charges: BTreeMap<String, i64>,
    }

    impl Provider {
        fn charge(&mut self, charge: &Charge) {
            self.charges.entry(charge.idempotency_key.clone()).or_insert(charge.amount_cents);
        }

        fn charged(&self) -> i64 {
            self.charges.values().sum()
        }
    }

    #[test]
    fn a_repeated_attempt_charges_once_and_another_execution_charges_again() {
        let mut provider = Provider::default();
        let run = |id: &str, attempt| {
            let ctx = Context::for_test().with_execution_id(id).with_attempt(attempt);
            invoice(&ctx, params(vec![item(1, 1000, 1900)])).unwrap()
        };
        provider.charge(&run("exec_a", 1).charge);
        provider.charge(&run("exec_a", 2).charge);
        assert_eq!(provider.charged(), 1190);
        assert_eq!(run("exec_a", 1), run("exec_a", 2));
        provider.charge(&run("exec_b", 1).charge);
        assert_eq!(provider.charged(), 2 * 1190);
        assert_ne!(run("exec_a", 1).number, run("exec_b", 1).number);
    }

    #[test]
    fn tax_is_rounded_once_per_rate_half_away_from_zero() {
        // Three lines of 0.50 at 7 % are 0.105, not three times 0.04.
        let three = invoice(&Context::for_test(), params(vec![item(1, 50, 700); 3])).unwrap();
        assert_eq!((three.net_cents, three.taxes[0].tax_cents, three.gross_cents), (150, 11, 161));
        let credit = invoice(&Context::for_test(), params(vec![item(3, -50, 700)])).unwrap();
        assert_eq!(credit.gross_cents, -161);
    }

    #[test]
    fn each_rate_has_its_own_line() {
        let mixed = params(vec![item(2, 1999, 1900), item(1, 1250, 700), item(1, 100, 0)]);
        let mixed = invoice(&Context::for_test(), mixed).unwrap();
        let taxes: Vec<_> = mixed.taxes.iter().map(|tax| (tax.basis_points, tax.net_cents, tax.tax_cents)).collect();
        assert_eq!(taxes, [(0, 100, 0), (700, 1250, 88), (1900, 3998, 760)]);
        assert_eq!(mixed.gross_cents, 100 + 1250 + 88 + 3998 + 760);
    }

    #[test]
    fn the_number_carries_the_year_of_the_slot() {
        let ctx = Context::for_test().with_slot("2027-01-01T00:00:00Z");
        assert!(invoice(&ctx, params(vec![item(1, 1, 0)])).unwrap().number.starts_with("INV-2027-"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_for_good_with_its_field() {
        for (bad, field) in [
            (params(vec![]), "`items`"),
            (params(vec![item(0, 1, 0)]), "`items[0].quantity`"),
            (params(vec![item(1, 1, 0), item(2, i64::MAX, 0)]), "`items[1]`"),
            (params(vec![item(1, i64::MAX, 1)]), "`items`"),
            (Params { customer: " ".into(), ..params(vec![item(1, 1, 0)]) }, "`customer`"),
            (Params { currency: "eur".into(), ..params(vec![item(1, 1, 0)]) }, "`currency`"),
        ] {
            let error = invoice(&Context::for_test(), bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Permanent);
            assert!(error.message().starts_with(field), "{error}");
        }
    }
}
