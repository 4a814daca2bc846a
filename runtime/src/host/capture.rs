//! What a run says: log lines, standard error, and a command's output. All of it is bounded while it arrives.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

use crate::outcome::{Limits, LogLevel, LogLine};

/// How much of standard error is kept when the log is full.
pub(crate) const STDERR_TAIL_BYTES: usize = 4096;
/// A line without an end is cut here.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 10;

/// A guest holds its streams while the host holds this, so it is shared; a run is single-threaded, so nobody ever waits.
#[derive(Clone)]
pub(crate) struct SharedCapture(pub(crate) Arc<Mutex<Capture>>);

impl SharedCapture {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self(Arc::new(Mutex::new(Capture::new(limits))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Capture> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Capture {
    lines: Vec<LogLine>,
    log_bytes_left: usize,
    dropped: u64,
    stdout_line: Vec<u8>,
    stderr_line: Vec<u8>,
    stderr_tail: VecDeque<u8>,
    output: BytesMut,
    output_bytes_max: usize,
}

/// The command wrote more than its output limit.
#[derive(Debug, thiserror::Error)]
#[error("the output is larger than its limit")]
pub(crate) struct OutputOverLimit;

/// What is left of a capture when its run has ended.
pub(crate) struct Captured {
    pub(crate) lines: Vec<LogLine>,
    pub(crate) dropped: u64,
    pub(crate) stderr_tail: String,
    pub(crate) output: Bytes,
}

impl Capture {
    fn new(limits: &Limits) -> Self {
        Self {
            lines: Vec::new(),
            log_bytes_left: limits.log_bytes,
            dropped: 0,
            stdout_line: Vec::new(),
            stderr_line: Vec::new(),
            stderr_tail: VecDeque::new(),
            output: BytesMut::new(),
            output_bytes_max: limits.output_bytes,
        }
    }

    /// Adds one line, or counts it. A line that does not fit closes the log, so that what is kept has no holes.
    pub(crate) fn log(&mut self, level: LogLevel, message: String) {
        match self.log_bytes_left.checked_sub(message.len() + 1) {
            Some(left) if self.dropped == 0 => {
                self.log_bytes_left = left;
                self.lines.push(LogLine { level, message });
            }
            _ => self.dropped += 1,
        }
    }

    pub(crate) fn stdout_lines(&mut self, bytes: &[u8]) {
        let mut line = std::mem::take(&mut self.stdout_line);
        self.split(&mut line, bytes);
        self.stdout_line = line;
    }

    pub(crate) fn stderr(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(STDERR_TAIL_BYTES)..];
        let excess = (self.stderr_tail.len() + kept.len()).saturating_sub(STDERR_TAIL_BYTES);
        self.stderr_tail.drain(..excess);
        self.stderr_tail.extend(kept);
        let mut line = std::mem::take(&mut self.stderr_line);
        self.split(&mut line, bytes);
        self.stderr_line = line;
    }

    pub(crate) fn output(&mut self, bytes: &[u8]) -> Result<(), OutputOverLimit> {
        if bytes.len() > self.output_bytes_max - self.output.len() {
            return Err(OutputOverLimit);
        }
        self.output.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes everything, unfinished lines included.
    pub(crate) fn finish(&mut self) -> Captured {
        for line in [std::mem::take(&mut self.stdout_line), std::mem::take(&mut self.stderr_line)] {
            if !line.is_empty() {
                self.line(&line);
            }
        }
        Captured {
            lines: std::mem::take(&mut self.lines),
            dropped: self.dropped,
            stderr_tail: String::from_utf8_lossy(self.stderr_tail.make_contiguous()).into_owned(),
            output: std::mem::take(&mut self.output).freeze(),
        }
    }

    fn split(&mut self, line: &mut Vec<u8>, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            for piece in text.chunks(LINE_BYTES_MAX) {
                if line.len() + piece.len() > LINE_BYTES_MAX {
                    self.line(line);
                    line.clear();
                }
                line.extend_from_slice(piece);
            }
            if ended {
                self.line(line);
                line.clear();
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.log(LogLevel::Info, String::from_utf8_lossy(line).into_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(log_bytes: usize, output_bytes: usize) -> Capture {
        Capture::new(&Limits { log_bytes, output_bytes, ..Limits::default() })
    }

    #[test]
    fn lines_fit_exactly_and_later_ones_are_counted() {
        let mut capture = capture(8, 0);
        capture.stderr(b"ab");
        capture.stderr(b"c\r\nde");
        capture.stderr(b"f\nghi\n\n");
        let captured = capture.finish();
        assert_eq!(captured.lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["abc", "def"]);
        assert_eq!(captured.dropped, 2, "the empty line after a dropped one is dropped too");
        assert_eq!(captured.stderr_tail, "abc\r\ndef\nghi\n\n");
    }

    #[test]
    fn a_line_without_an_end_is_cut_and_the_tail_is_bounded() {
        let mut capture = capture(1 << 20, 0);
        capture.stderr(&vec![b'x'; LINE_BYTES_MAX * 2 + 1]);
        let captured = capture.finish();
        assert_eq!(
            captured.lines.iter().map(|line| line.message.len()).collect::<Vec<_>>(),
            [LINE_BYTES_MAX, LINE_BYTES_MAX, 1]
        );
        assert_eq!(captured.stderr_tail.len(), STDERR_TAIL_BYTES);
    }

    #[test]
    fn output_is_accepted_up_to_its_limit() {
        let mut capture = capture(0, 4);
        assert!(capture.output(b"abcd").is_ok());
        assert!(capture.output(b"").is_ok());
        assert!(capture.output(b"e").is_err());
        assert_eq!(capture.finish().output, "abcd");
    }
}
