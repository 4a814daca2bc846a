//! The child process that compiles, seen from inside.
//!
//! It reads a [`Request`] and the component from standard input, and writes a header and the code to standard output. What went wrong is its exit
//! code, with a sentence on standard error. It limits itself before it reads anything that comes from a user.

use std::io::{self, Read, Write as _};
use std::process::ExitCode;

use nix::sys::resource::{Resource, setrlimit};

use crate::engine::{compile_settings, engine_version};
use crate::inspect::COMPONENT_BYTES_MAX;

/// The compiler does not accept the component.
pub(super) const EXIT_INVALID: u8 = 10;
/// The memory limit was hit, and noticed.
pub(super) const EXIT_OVER_MEMORY: u8 = 11;
/// Whoever started this is not our parent.
pub(super) const EXIT_BAD_REQUEST: u8 = 12;

const MAGIC: &[u8; 16] = b"compline-make-1\n";

/// What stands before the code: a program that was replaced while its parent runs must not pass for the same one.
pub(super) fn answer_header() -> String {
    format!("compline-made-1 {}\n", engine_version())
}

/// The limits that a worker sets for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) memory_bytes: u64,
    pub(super) cpu_seconds: u64,
}

impl Request {
    pub(super) fn encode(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..24].copy_from_slice(&self.memory_bytes.to_le_bytes());
        bytes[24..].copy_from_slice(&self.cpu_seconds.to_le_bytes());
        bytes
    }

    fn read(from: &mut impl Read) -> io::Result<Self> {
        let (mut magic, mut memory, mut cpu) = ([0; 16], [0; 8], [0; 8]);
        from.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "this is not a request to compile"));
        }
        from.read_exact(&mut memory)?;
        from.read_exact(&mut cpu)?;
        Ok(Self { memory_bytes: u64::from_le_bytes(memory), cpu_seconds: u64::from_le_bytes(cpu) })
    }

    fn limit_this_process(self) -> nix::Result<()> {
        setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
        setrlimit(Resource::RLIMIT_AS, self.memory_bytes, self.memory_bytes)?;
        // The soft limit is a signal that can be told apart; the hard one is for a process that ignores it.
        setrlimit(Resource::RLIMIT_CPU, self.cpu_seconds, self.cpu_seconds + 1)
    }
}

/// The whole life of a compiling child process. Call it from `main`, before anything else, when the program was started with the
/// arguments of [`super::CompilePlace::ChildProcess`], and end with what it returns.
pub fn compile_worker() -> ExitCode {
    match work(&mut io::stdin().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, reason)) => {
            // Without a parent that listens there is nobody to tell.
            let _ = writeln!(io::stderr(), "{reason}");
            ExitCode::from(code)
        }
    }
}

fn work(from: &mut impl Read) -> Result<(), (u8, String)> {
    let bad_request = |error: io::Error| (EXIT_BAD_REQUEST, error.to_string());
    let request = Request::read(from).map_err(bad_request)?;
    request
        .limit_this_process()
        .map_err(|errno| (EXIT_BAD_REQUEST, format!("the limits could not be set: {errno}")))?;
    let mut component = Vec::new();
    from.take(COMPONENT_BYTES_MAX as u64).read_to_end(&mut component).map_err(bad_request)?;
    let code =
        wasmtime::Engine::new(&compile_settings()).and_then(|engine| engine.precompile_component(&component)).map_err(
            |error| (if is_out_of_memory(&error) { EXIT_OVER_MEMORY } else { EXIT_INVALID }, format!("{error:#}")),
        )?;
    let mut out = io::stdout().lock();
    out.write_all(answer_header().as_bytes())
        .and_then(|()| out.write_all(&code))
        .and_then(|()| out.flush())
        .map_err(bad_request)
}

fn is_out_of_memory(error: &wasmtime::Error) -> bool {
    let refused_by_system = |error: &io::Error| error.kind() == io::ErrorKind::OutOfMemory;
    error.is::<wasmtime::OutOfMemory>() || error.downcast_ref::<io::Error>().is_some_and(refused_by_system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_back_and_strangers_refused() {
        let request = Request { memory_bytes: 1 << 30, cpu_seconds: 7 };
        assert_eq!(Request::read(&mut request.encode().as_slice()).unwrap(), request);
        assert!(Request::read(&mut [b'x'; 32].as_slice()).is_err());
        assert!(Request::read(&mut request.encode()[..31].as_ref()).is_err());
    }
}
