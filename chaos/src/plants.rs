//! Classic mistakes, planted into this run's database to see that the checks find them. Each replaces a piece of a SQL function;
//! no release holds any of this.

use anyhow::{Context, Result, bail};
use sqlx::{AssertSqlSafe, PgConnection};

/// A mistake.
pub struct Plant {
    /// For `--plant`.
    pub name: &'static str,
    /// What somebody might have written.
    pub mistake: &'static str,
    /// `(function, what it says, what it says then)`.
    edits: &'static [(&'static str, &'static str, &'static str)],
    /// The constraint that would stand behind it, on its table.
    without: Option<(&'static str, &'static str)>,
}

/// All of them.
pub const PLANTS: &[Plant] = &[
    Plant {
        name: "two-transactions",
        mistake: "the answer is recorded after the work, by somebody who may die in between",
        edits: &[(
            "record_key",
            "  insert into public.idempotency_key",
            "  if random() < 0.02 then\n    return row('answer', p_outcome.status, v_body, v_content_type, p_outcome.etag, \
             p_outcome.location)::holdfast.answer;\n  end if;\n  insert into public.idempotency_key",
        )],
        without: None,
    },
    Plant {
        name: "save-without-version",
        mistake: "a save compares the version before its UPDATE and not in it",
        edits: &[("save_order", "and holdfast.matches(v_match, o.version)", "and true")],
        without: None,
    },
    Plant {
        name: "delivered-before-sent",
        mistake: "an event counts as delivered when it is claimed",
        edits: &[(
            "relay_lease",
            "update public.outbox o set attempts = o.attempts + 1,",
            "update public.outbox o set processed_at = case when random() < 0.05 then clock_timestamp() end, attempts = o.attempts + 1,",
        )],
        without: None,
    },
    Plant {
        name: "event-after-commit",
        mistake: "an event is written by somebody who may die between the change and the event",
        edits: &[(
            "fan_out",
            "  insert into public.outbox",
            "  if random() < 0.01 then\n    return;\n  end if;\n  insert into public.outbox",
        )],
        without: None,
    },
    Plant {
        name: "lost-rows-stay-lost",
        mistake: "rows of a relay that died are claimed by nobody",
        edits: &[("relay_claim_lost", "  if not found then\n    return;", "  if true then\n    return;")],
        without: None,
    },
    Plant {
        name: "queue-not-woken",
        mistake: "the next event of an ordered queue is not made due",
        edits: &[(
            "wake",
            "o.next_attempt_at = 'infinity' and",
            "false and o.next_attempt_at = 'infinity' and",
        )],
        without: None,
    },
    Plant {
        name: "ledger-forgotten",
        mistake: "a move is now and then not written to its ledger",
        edits: &[("move", "p_entry_type, p_actor;", "p_entry_type, p_actor where random() >= 0.01;")],
        without: None,
    },
    Plant {
        name: "check-then-act",
        mistake: "what is available is read first, and taken a moment later",
        edits: &[
            (
                "move",
                "v_turn := pg_advisory_xact_lock(holdfast.lock_class_sku(), uuid_hash(p_skus[1]));",
                "perform pg_sleep(0.2);",
            ),
            ("move", "and p.on_hand + p.on_order - p.allocated >= p_qtys[1]\n", "\n"),
        ],
        without: Some(("sku_position", "sku_position_no_oversell")),
    },
    Plant {
        name: "answer-rendered-anew",
        mistake: "a repeat gets the same facts, in other bytes",
        edits: &[(
            "record_key",
            "p_outcome.status, v_body,",
            "p_outcome.status, v_body || convert_to(' ', 'UTF8'),",
        )],
        without: None,
    },
    Plant {
        name: "version-stands-still",
        mistake: "a save now and then changes the order and not its version",
        edits: &[("save_order", "version = o.version + 1,", "version = o.version + (random() >= 0.1)::int,")],
        without: None,
    },
    Plant {
        name: "number-lost",
        mistake: "the number of an event is taken where a rollback does not give it back",
        edits: &[(
            "move",
            "event_sequence = p.event_sequence + 1\n    where",
            "event_sequence = p.event_sequence + 1 + (random() < 0.02)::int\n    where",
        )],
        without: None,
    },
    Plant {
        name: "waiting-unserved",
        mistake: "stock that arrives is for sale before channel orders that lack it",
        edits: &[("serve_channel_orders", "\nbegin\n", "\nbegin\n  return;\n")],
        without: None,
    },
];

/// Plants the mistake of this name.
pub async fn plant(conn: &mut PgConnection, name: &str) -> Result<()> {
    let Some(plant) = PLANTS.iter().find(|plant| plant.name == name) else {
        let names: Vec<_> = PLANTS.iter().map(|plant| plant.name).collect();
        bail!("there is no mistake {name:?}; there are {}", names.join(", "));
    };
    println!("planted: {}", plant.mistake);
    if let Some((table, constraint)) = plant.without {
        let drop = format!("alter table {table} drop constraint {constraint}");
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *conn).await?;
    }
    for (function, says, instead) in plant.edits {
        let definition: String = sqlx::query_scalar(
            "select pg_get_functiondef(p.oid) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
             where n.nspname = 'holdfast' and p.proname = $1",
        )
        .bind(function)
        .fetch_one(&mut *conn)
        .await
        .with_context(|| format!("the function {function}"))?;
        if !definition.contains(says) {
            bail!("{function} no longer says {says:?}: the mistake {name} has to be written anew");
        }
        let planted = definition.replacen(says, instead, 1);
        sqlx::raw_sql(AssertSqlSafe(planted)).execute(&mut *conn).await?;
    }
    Ok(())
}
