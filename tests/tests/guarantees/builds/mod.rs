//! Two builds on one store: what the older one cannot read it refuses, leaves alone, counts and lists, and everything else goes on.

mod refused;
mod rewriting;
mod side_by_side;
