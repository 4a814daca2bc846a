//! What a tick decides: tables of cases, and what must hold whatever happens.

mod late;
mod overlap;
mod player;
