//! What the commands and the bench share: paths, the local PostgreSQL, processes, Python tools, ports, tokens.

pub mod dev_env;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod python;
pub mod signing;
pub mod tokens;
pub mod workspace;
