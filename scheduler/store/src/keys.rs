//! Every key prefix of Compline, in one place. Under construction.
