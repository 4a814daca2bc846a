//! Everything that the command line prints: results to stdout, all else to stderr.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use comfy_table::{Cell, Color, ContentArrangement, Table, TableStyle};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::args::{ColorChoice, Globals, OutputFormat};
use super::error::CliError;

const RED: &str = "\u{1b}[1;31m";
const CYAN: &str = "\u{1b}[36m";
const PLAIN: &str = "\u{1b}[0m";

/// A table is not squeezed into less.
const TABLE_COLUMNS_MIN: u16 = 40;

/// Where and how this run of the program prints.
#[derive(Debug, Clone)]
pub struct Out {
    format: OutputFormat,
    quiet: bool,
    /// How much more than usual to say.
    pub verbose: u8,
    color_stdout: bool,
    color_stderr: bool,
}

impl Out {
    /// As the global flags ask for.
    pub fn new(globals: &Globals) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colored = |terminal: bool| match globals.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => terminal && !no_color && !dumb,
        };
        Self {
            format: globals.output,
            quiet: globals.quiet,
            verbose: globals.verbose,
            color_stdout: colored(std::io::stdout().is_terminal()),
            color_stderr: colored(std::io::stderr().is_terminal()),
        }
    }

    /// Whether nothing but results and errors is wanted.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    /// Whether stderr takes colours.
    pub fn color_stderr(&self) -> bool {
        self.color_stderr
    }

    /// The format of results.
    pub fn format(&self) -> OutputFormat {
        self.format
    }

    /// Prints one result.
    pub fn line(&self, text: &str) -> Result<(), CliError> {
        let mut stdout = std::io::stdout().lock();
        match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            // A reader that has read enough (`| head`) is no failure.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(CliError::failed(format!("stdout can't be written: {error}"))),
        }
    }

    /// Prints bytes as they are, and ends the line if they do not.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut stdout = std::io::stdout().lock();
        let end: &[u8] = if bytes.ends_with(b"\n") { b"" } else { b"\n" };
        match stdout.write_all(bytes).and_then(|()| stdout.write_all(end)).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(CliError::failed(format!("stdout can't be written: {error}"))),
        }
    }

    /// Prints a value as one line of JSON.
    pub fn json<T: Serialize>(&self, value: &T) -> Result<(), CliError> {
        let text = serde_json::to_string(value)
            .map_err(|error| CliError::failed(format!("the result has no JSON form: {error}")))?;
        self.line(&text)
    }

    /// Says something to the person at the terminal, unless they asked for quiet.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            self.stderr(text);
        }
    }

    /// Says something only if more was asked for.
    pub fn detail(&self, text: &str) {
        if self.verbose > 0 && !self.quiet {
            self.stderr(text);
        }
    }

    /// Prints why the command failed. With JSON asked for, stdout gets it too, so that a script finds it where it looks for the result.
    pub fn error(&self, error: &CliError) {
        self.stderr(&format!("{} {}", self.paint_stderr("error:", RED), error.text()));
        if let Some(hint) = error.hint() {
            self.stderr(&format!("{} {hint}", self.paint_stderr("hint:", CYAN)));
        }
        if self.format != OutputFormat::Table && !error.is_after_result() {
            // It is the last thing printed; if even that fails, the exit code still tells.
            let _ = self.json(&serde_json::json!({ "error": error.document() }));
        }
    }

    fn stderr(&self, text: &str) {
        // With stderr closed there is nobody to tell.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    fn paint_stderr(&self, text: &str, color: &str) -> String {
        if self.color_stderr { format!("{color}{text}{PLAIN}") } else { text.to_owned() }
    }

    /// Prints a table. An empty one is said to be empty on stderr, so that stdout stays clean.
    pub fn table(&self, header: &[&str], rows: Vec<Vec<String>>, none: &str) -> Result<(), CliError> {
        if rows.is_empty() {
            self.say(none);
            return Ok(());
        }
        let mut table = Table::new();
        table.load_style(TableStyle::new()).set_header(header.iter().copied());
        if self.color_stdout {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        // A terminal that says that it has no width has not been asked how wide it is.
        if std::io::stdout().is_terminal() && table.width().is_none_or(|width| width >= TABLE_COLUMNS_MIN) {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        table.add_rows(rows.into_iter().map(|row| row.into_iter().map(cell)));
        self.line(&table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n"))
    }

    /// Prints names with values, one per line; the empty ones are left out.
    pub fn fields(&self, fields: &[(&str, String)]) -> Result<(), CliError> {
        let shown: Vec<_> = fields.iter().filter(|(_, value)| !value.is_empty()).collect();
        let width = shown.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in shown {
            self.line(&format!("{name:width$}  {value}"))?;
        }
        Ok(())
    }

    /// A progress bar over so many bytes. It shows only on a terminal.
    pub fn bytes_bar(&self, message: &str, bytes: u64) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(bytes), self.draw_target());
        let style = "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.with_message(message.to_owned())
    }

    /// A progress bar over rows, of which there are `total` if that is known. It shows only on a terminal.
    pub fn rows_bar(&self, message: &'static str, total: Option<u64>) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(total, self.draw_target());
        let style = if total.is_some() {
            "{msg} {bar:30} {pos}/{len} rows {per_sec}"
        } else {
            "{spinner} {msg} {pos} rows {per_sec}"
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.with_message(message)
    }

    /// A sign of life while something of unknown length goes on. It shows only on a terminal.
    pub fn spinner(&self, message: &str) -> ProgressBar {
        let spinner = ProgressBar::with_draw_target(None, self.draw_target());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            spinner.set_style(style);
        }
        spinner.enable_steady_tick(Duration::from_millis(120));
        spinner.with_message(message.to_owned())
    }

    fn draw_target(&self) -> ProgressDrawTarget {
        if self.quiet || !std::io::stderr().is_terminal() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        }
    }
}

/// A cell of a table; a status has its colour.
fn cell(text: String) -> Cell {
    let color = match text.as_str() {
        "COMPLETED" | "ready" | "ACTIVE" => Some(Color::Green),
        "FAILED" | "refused" => Some(Color::Red),
        "RUNNING" | "QUEUED" | "RETRYING" | "compiling" => Some(Color::Yellow),
        _ => None,
    };
    let cell = Cell::new(printable(&text));
    match color {
        Some(color) => cell.fg(color),
        None => cell,
    }
}

/// Text of a user or a task, with nothing in it that a terminal would act on.
pub fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\t', "\u{fffd}")
}
