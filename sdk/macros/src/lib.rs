//! The attribute behind `compline_sdk::task`.
