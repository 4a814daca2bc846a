//! One module per table. Under construction.
