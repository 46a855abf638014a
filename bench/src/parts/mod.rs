//! The parts of the bench, one file each. A new part is its file, with a function `measure` from a [`Stage`] to what it
//! [`Measured`], and its name and line here.

mod allocate;
mod cold;
mod cpu;
mod database;
mod fan_out;
mod history;
mod lists;
mod reconcile;
mod relay;
mod timed;
mod wire;

use anyhow::Result;

use super::report::Measured;
use super::stage::Stage;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Throughput of allocate, beside the floor's and the textbook's.
    Allocate,
    /// Throughput of allocate at the database, beside the version before's and the floor's.
    Database,
    /// CPU seconds of the database per 1,000 requests, beside the version before's.
    Cpu,
    /// Round trips and commits of a warm allocate.
    Wire,
    /// Cold starts, memory and package size of allocate.
    Cold,
    /// Allocate beside a long backlog of ordered queues.
    FanOut,
    /// Allocate beside much that is settled, and beside the reaper.
    History,
    /// Lists and searches at a million orders.
    Lists,
    /// A night's reconciliation of 40,000 SKUs, beside its floor; allocate beside it.
    Reconcile,
    /// Events that relays deliver to one destination.
    Relay,
}

impl Part {
    pub async fn measure(self, stage: &Stage<'_>) -> Result<Measured> {
        match self {
            Self::Allocate => allocate::measure(stage).await,
            Self::Database => database::measure(stage).await,
            Self::Cpu => cpu::measure(stage).await,
            Self::Wire => wire::measure(stage).await,
            Self::Cold => cold::measure(stage).await,
            Self::FanOut => fan_out::measure(stage).await,
            Self::History => history::measure(stage).await,
            Self::Lists => lists::measure(stage).await,
            Self::Reconcile => reconcile::measure(stage).await,
            Self::Relay => relay::measure(stage).await,
        }
    }
}
