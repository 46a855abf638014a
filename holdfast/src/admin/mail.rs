//! `holdfast admin mail`: addresses to which no mail is sent, since SES told that it would not be taken.

use anyhow::{Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use sqlx::{PgConnection, Row};

/// `admin mail …`
#[derive(Subcommand)]
pub enum Command {
    /// List addresses that are paused, newest first.
    Paused,
    /// Let mails go to an address again, once its mailbox is mended or its owner asks for it. Dead letters are requeued in the console.
    Resume {
        /// The address, as `paused` shows it.
        #[arg(long)]
        address: String,
    },
}

/// Runs the command and returns what it changed or found.
pub async fn run(conn: &mut PgConnection, command: Command) -> Result<Vec<Value>> {
    match command {
        Command::Paused => {
            let rows = sqlx::query(
                "select address, kind, reason, holdfast.rfc3339(told_at) from paused_address where resumed_at is null
                 order by told_at desc, address",
            )
            .fetch_all(conn)
            .await?;
            Ok(rows
                .iter()
                .map(|r| {
                    json!({ "address": r.get::<String, _>(0), "kind": r.get::<String, _>(1),
                        "reason": r.get::<String, _>(2), "at": r.get::<String, _>(3) })
                })
                .collect())
        }
        Command::Resume { address } => {
            let resumed = sqlx::query(
                "update paused_address set resumed_at = now() where address = lower($1) and resumed_at is null",
            )
            .bind(address.trim())
            .execute(conn)
            .await?;
            if resumed.rows_affected() == 0 {
                bail!("the address {} is not paused", address.trim());
            }
            Ok(vec![json!({ "address": address.trim().to_lowercase(), "paused": false })])
        }
    }
}
