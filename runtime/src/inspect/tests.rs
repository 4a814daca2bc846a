//! Each refusal, from bytes that deserve it.
