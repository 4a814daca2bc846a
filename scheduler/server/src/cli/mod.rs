//! The `compline` command line. It speaks HTTP to a server and never opens a store (`serve` and `admin` excepted).

mod admin;
mod args;
mod dead;
mod docs;
mod error;
mod fdb;
mod fleet;
mod input;
mod job;
mod local;
mod out;
mod run;
mod schedule;
mod serve;
mod task;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

pub use args::Cli;
pub use error::{CliError, Exit};

use args::{Command, LaneCommand, NodeCommand, OutputFormat};
use out::Out;

use crate::api::dto::Page;
use crate::client::{Client, Reply};

/// The whole program.
pub fn main() -> ExitCode {
    // Before anything else: a process that compiles does nothing but that.
    if std::env::args_os().nth(1).is_some_and(|command| command == crate::serve::COMPILE_COMMAND) {
        return compline_runtime::compile_worker();
    }
    let cli = Cli::parse();
    let out = Out::new(&cli.globals);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            out.error(&CliError::failed(format!("the program's threads could not be started: {error}")));
            return ExitCode::from(Exit::Failed as u8);
        }
    };
    match runtime.block_on(command(cli, &out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out.error(&error);
            ExitCode::from(error.exit() as u8)
        }
    }
}

async fn command(cli: Cli, out: &Out) -> Result<(), CliError> {
    let client = || Client::new(&cli.globals.server, cli.globals.token.as_deref());
    match cli.command {
        Command::Serve(args) => serve::serve(*args, out).await,
        Command::Task(command) => task::command(command, client, out).await,
        Command::Job(command) => job::command(command, &client()?, out).await,
        Command::Run(command) => run::command(command, &client()?, out).await,
        Command::Dead(command) => dead::command(command, &client()?, out).await,
        Command::Schedule(command) => schedule::command(command, out),
        Command::Node(NodeCommand::List) => fleet::nodes(&client()?, out).await,
        Command::Lane(LaneCommand::List) => fleet::lanes(&client()?, out).await,
        Command::Admin(command) => admin::command(command, out).await,
        Command::Version => version::version(out),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "compline", &mut script);
            out.bytes(&script)
        }
        Command::Docs { directory } => docs::write(&directory, out),
        Command::Compile => Err(CliError::failed("this command is for the server itself")),
    }
}

/// Prints a page in the format that was asked for.
fn listing<T: serde::Serialize>(
    out: &Out,
    reply: &Reply<Page<T>>,
    header: &[&str],
    row: impl Fn(&T) -> Vec<String>,
    none: &str,
) -> Result<(), CliError> {
    match out.format() {
        OutputFormat::Json => out.line(&reply.text)?,
        OutputFormat::Jsonl => reply.value.items.iter().try_for_each(|item| out.json(item))?,
        OutputFormat::Table => out.table(header, reply.value.items.iter().map(row).collect(), none)?,
    }
    match &reply.value.next_cursor {
        Some(cursor) if out.format() != OutputFormat::Json => out.say(&format!("there is more: --cursor {cursor}")),
        _ => {}
    }
    Ok(())
}
