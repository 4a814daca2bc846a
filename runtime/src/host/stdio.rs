//! Standard output and standard error of a guest.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError};

use super::capture::{Capture, OutputOverLimit};

/// What a guest may write in one call.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// Where a stream ends up.
#[derive(Clone, Copy)]
pub(super) enum Sink {
    /// The log, and the tail that is kept for the report.
    Stderr,
    /// The log: a task returns its output.
    StdoutLines,
    /// The output of a command.
    Output,
}

#[derive(Clone)]
pub(super) struct Stdio {
    pub(super) capture: Arc<Mutex<Capture>>,
    pub(super) sink: Sink,
}

impl Stdio {
    fn put(&self, bytes: &[u8]) -> Result<(), OutputOverLimit> {
        let mut capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
        match self.sink {
            Sink::Stderr => capture.stderr(bytes),
            Sink::StdoutLines => capture.stdout_lines(bytes),
            Sink::Output => return capture.output(bytes),
        }
        Ok(())
    }
}

#[async_trait]
impl OutputStream for Stdio {
    fn write(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        self.put(&bytes).map_err(|over| StreamError::Trap(over.into()))
    }

    fn flush(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    fn check_write(&mut self) -> Result<usize, StreamError> {
        Ok(WRITE_BYTES_MAX)
    }
}

#[async_trait]
impl Pollable for Stdio {
    async fn ready(&mut self) {}
}

impl IsTerminal for Stdio {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stdio {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for Stdio {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.put(bytes).map(|()| bytes.len()).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
