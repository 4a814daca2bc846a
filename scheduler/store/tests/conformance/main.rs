//! The conformance suite. A backend is admitted when every test here passes on it.
//!
//! Each test is a function over a fresh, empty backend. Adding a backend is one `suite!` line with a function that makes one.

#[cfg(feature = "foundationdb")]
mod cluster;
mod conflicts;
mod counters;
mod fixture;
mod limits;
mod own_writes;
mod ranges;
mod retries;
mod serial;
mod stamps;
mod watches;

/// Makes one `#[tokio::test]` per function of the suite.
macro_rules! suite {
    ($backend:ident, $make:path) => {
        mod $backend {
            suite! { @tests $make,
                conflicts: lost_update, write_skew, phantom_insert, phantom_removal, insert_beyond_a_limited_scan,
                    insert_before_a_limited_reverse_scan, snapshot_reads, explicit_read_conflict, explicit_write_conflict, blind_writes,
                    own_writes_are_no_dependency, cleared_spans_conflict, cleared_span_against_insert, counters_conflict_with_readers, read_only,
                    repeatable_reads, acknowledged_commits_are_seen, a_key_written_twice;
                counters: concurrent_additions, odd_values, own_additions;
                limits: value_at_its_limit, key_at_its_limit, transaction_at_its_limit, nothing_of_a_refused_transaction;
                own_writes: random_writes_agree_with_a_model;
                ranges: order_and_limits, own_writes_are_merged, empty_spans;
                retries: conflicts_max, refusals_of_the_body, retried_until_it_commits, permanent_errors;
                serial: random_transactions_have_a_serial_order, transfers_keep_their_sum;
                stamps: order_of_transactions, keys_and_values_agree, rows_of_one_commit, own_stamps_are_unreadable, scans_up_to_own_stamps,
                    cleared_stamps;
                watches: change_after_arming, change_before_arming, no_change, own_change, cleared_span;
            }
        }
    };
    (@tests $make:path, $($module:ident: $($test:ident),+;)+) => {
        $(mod $module { $(
            #[tokio::test]
            async fn $test() {
                // No fixture: it is skipped, and said so.
                let Some(fixture) = $make().await else { return };
                crate::$module::$test(&fixture).await;
                fixture.close().await;
            }
        )+ })+
    };
}

suite!(memory, crate::fixture::memory);
suite!(embedded, crate::fixture::embedded);
#[cfg(feature = "foundationdb")]
suite!(foundationdb_one_memory, crate::cluster::one_memory);
#[cfg(feature = "foundationdb")]
suite!(foundationdb_one_ssd, crate::cluster::one_ssd);
#[cfg(feature = "foundationdb")]
suite!(foundationdb_three_memory, crate::cluster::three_memory);
#[cfg(feature = "foundationdb")]
suite!(foundationdb_three_ssd, crate::cluster::three_ssd);
