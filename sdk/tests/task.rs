//! An annotated function is a plain function on the developer's machine.

use std::time::Duration;

use compline_sdk::{Context, ErrorKind, Level, TaskError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
struct Params {
    amounts: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Sum {
    total: i64,
    execution: String,
}

#[compline_sdk::task]
fn sum(ctx: &Context, params: Params) -> Result<Sum, TaskError> {
    let mut total = 0;
    for amount in &params.amounts {
        total += amount.parse::<i64>()?;
    }
    if ctx.lag() > Duration::from_secs(1) {
        ctx.warn(format_args!("started {:?} late", ctx.lag()));
    }
    Ok(Sum { total, execution: ctx.execution_id().to_owned() })
}

mod without_parameters {
    use super::*;

    #[compline_sdk::task]
    fn ping(ctx: &Context) -> Result<u32, TaskError> {
        if ctx.attempt() < 2 { Err(TaskError::retryable("not yet")) } else { Ok(ctx.attempt()) }
    }

    #[test]
    fn it_is_called_with_its_context_alone() {
        assert_eq!(ping(&Context::for_test()).unwrap_err().kind(), ErrorKind::Retryable);
        assert_eq!(ping(&Context::for_test().with_attempt(2)), Ok(2));
    }
}

#[test]
fn a_task_is_called_like_any_function() {
    let ctx = Context::for_test().with_execution_id("exec_1");
    let output = sum(&ctx, Params { amounts: vec!["1".into(), "2".into()] }).unwrap();
    assert_eq!(output, Sum { total: 3, execution: "exec_1".into() });
    let error = sum(&ctx, Params { amounts: vec!["one".into()] }).unwrap_err();
    assert_eq!(error, TaskError::permanent("invalid digit found in string"));
}

#[test]
fn what_it_logs_can_be_read_back() {
    let ctx = Context::for_test().with_lag(Duration::from_secs(2));
    sum(&ctx, Params { amounts: vec![] }).unwrap();
    assert_eq!(ctx.logged(), [(Level::Warn, "started 2s late".to_owned())]);
}
