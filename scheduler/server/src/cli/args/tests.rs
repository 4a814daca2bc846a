use super::*;
use clap::CommandFactory;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn a_job_needs_exactly_one_schedule() {
    for right in ["--now", "--at 2026-12-01T10:00:00Z", "--cron @daily --tz Europe/Berlin --gap skip --fold both"] {
        assert!(parse(&format!("compline job create --task a {right}")).is_ok(), "{right}");
    }
    for wrong in ["", "--now --cron @daily", "--now --tz UTC", "--at 2026-12-01T10:00:00Z --gap skip", "--cron"] {
        let error = parse(&format!("compline job create --task a {wrong}")).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{wrong}");
    }
}

#[test]
fn global_flags_are_taken_anywhere() {
    let cli = parse("compline run list -o jsonl --server http://h:1 -vv --color never").unwrap();
    assert_eq!(cli.globals.output, OutputFormat::Jsonl);
    assert_eq!((cli.globals.server.as_str(), cli.globals.verbose), ("http://h:1", 2));
    assert!(parse("compline -q -o json version").is_ok());
    assert_eq!(parse("compline -o yaml version").unwrap_err().exit_code(), 2);
}

#[test]
fn a_job_and_a_dead_letter_are_acted_on_by_name() {
    for line in
        ["compline job pause job_x", "compline dead list", "compline job create --task a --cron @daily --paused"]
    {
        assert!(parse(line).is_ok(), "{line}");
    }
    for line in
        ["compline job pause", "compline job pause job_x job_y", "compline dead list job_x", "compline job rest job_x"]
    {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn a_negative_looking_expression_is_an_expression() {
    let cli = Cli::try_parse_from(["compline", "schedule", "preview", "--cron", "-1 * * * *"]).unwrap();
    assert!(matches!(cli.command, Command::Schedule(ScheduleCommand::Preview { cron, .. }) if cron == "-1 * * * *"));
}
