//! The passes: idempotent transactions that handle many executions in one commit. Each is driven by a loop of its node and takes no input
//! but what the store says and who asks.

pub mod beat;
pub mod claim;
pub mod complete;
pub mod lease;
pub mod reap;
pub mod tick;

use std::future::Future;

use compline_store::{StoreError, TransactOptions};

/// How many executions one transaction handles at the most.
pub const BATCH_MAX: usize = 256;

/// A batch that met others so often is cut in two.
const BATCH_CONFLICTS: TransactOptions = TransactOptions { conflicts_max: Some(2) };

/// Runs `pass` over `items` in batches. A batch that conflicts or is too large is halved and tried again, down to one item, which is tried
/// until it commits.
async fn in_batches<T, R, F, Fut>(items: &[T], mut pass: F) -> Result<Vec<R>, StoreError>
where
    F: FnMut(TransactOptions, usize, usize) -> Fut,
    Fut: Future<Output = Result<R, StoreError>>,
{
    let mut results = Vec::with_capacity(items.len().div_ceil(BATCH_MAX));
    let mut waiting: Vec<(usize, usize)> =
        (0..items.len()).step_by(BATCH_MAX).map(|at| (at, items.len().min(at + BATCH_MAX))).rev().collect();
    while let Some((begin, end)) = waiting.pop() {
        let options = if end - begin > 1 { BATCH_CONFLICTS } else { TransactOptions { conflicts_max: None } };
        match pass(options, begin, end).await {
            Ok(result) => results.push(result),
            Err(StoreError::Conflict | StoreError::TooLarge { what: "transaction", .. }) if end - begin > 1 => {
                let middle = begin + (end - begin) / 2;
                waiting.push((middle, end));
                waiting.push((begin, middle));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(results)
}
