//! The `compline` command.

fn main() {}
