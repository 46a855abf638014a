//! The relay's promises, tested against a real database and partners that are real HTTP servers.
#![expect(clippy::unwrap_used, reason = "tests")]

mod answers;
mod bounds;
mod buses;
mod crash;
mod deliver;
mod fail;
mod guard;
mod health;
mod mail;
mod neighbours;
mod ordered;
mod returns;
mod runtime;
mod share;
mod shop;
mod shop_items;
mod standins;
mod support;
mod vectors;
