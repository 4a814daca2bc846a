//! The memory of a run, counted over all its linear memories and all its tables together.

use wasmtime::ResourceLimiter;

/// Grants and counts. Memory is never given back within a run, so what is granted at the end is the peak.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory: Budget,
    table_elements: Budget,
    denied: bool,
}

#[derive(Debug)]
struct Budget {
    granted: usize,
    limit: usize,
    /// What was granted last: it goes back when the growth fails for another reason.
    last: usize,
}

impl Limiter {
    pub(crate) fn new(memory_bytes: u64, table_elements: usize) -> Self {
        let memory_bytes = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
        Self { memory: Budget::new(memory_bytes), table_elements: Budget::new(table_elements), denied: false }
    }

    pub(crate) fn memory_peak_bytes(&self) -> u64 {
        self.memory.granted as u64
    }

    /// Whether a request was refused because of a limit, and not because the guest's own maximum forbids it.
    pub(crate) fn denied(&self) -> bool {
        self.denied
    }
}

impl Budget {
    fn new(limit: usize) -> Self {
        Self { granted: 0, limit, last: 0 }
    }

    fn grant(&mut self, current: usize, desired: usize) -> bool {
        let more = desired.saturating_sub(current);
        let granted = self.granted.saturating_add(more) <= self.limit;
        self.last = if granted { more } else { 0 };
        self.granted += self.last;
        granted
    }

    fn take_back(&mut self) {
        self.granted -= std::mem::take(&mut self.last);
    }
}

/// What the system could not provide is a refusal too: the guest sees the same -1.
impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let granted = self.memory.grant(current, desired);
        self.denied |= !granted;
        Ok(granted)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory.take_back();
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let granted = self.table_elements.grant(current, desired);
        self.denied |= !granted;
        Ok(granted)
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.table_elements.take_back();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Limiter;
    use wasmtime::ResourceLimiter as _;

    #[test]
    fn memories_add_up_to_one_total() {
        let mut limiter = Limiter::new(100, 10);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 40, None).unwrap(), "exactly at the limit");
        assert!(!limiter.denied());
        assert!(!limiter.memory_growing(40, 41, None).unwrap(), "one past it");
        assert!(limiter.denied());
        assert_eq!(limiter.memory_peak_bytes(), 100);
    }

    #[test]
    fn failed_growth_is_given_back() {
        let mut limiter = Limiter::new(100, 10);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(60, 90, Some(70)).unwrap());
        limiter.memory_grow_failed(wasmtime::Error::msg("past the guest's maximum")).unwrap();
        assert_eq!(limiter.memory_peak_bytes(), 60);
        assert!(!limiter.denied());
    }

    #[test]
    fn tables_add_up_too() {
        let mut limiter = Limiter::new(100, 10);
        assert!(limiter.table_growing(0, 6, None).unwrap());
        assert!(!limiter.table_growing(0, 5, None).unwrap());
        assert!(limiter.table_growing(6, 10, None).unwrap());
    }
}
