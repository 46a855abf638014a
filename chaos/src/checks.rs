//! What has to hold when all is quiet again, looked for in the tables, in the clients' answers and at the partner.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::Result;
use serde_json::Value;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::intent::{Intent, Kept, Told};
use crate::partner::Partner;
use crate::world::World;
use crate::{arrivals, audits};

/// One row of the table that is printed.
#[derive(Debug)]
pub struct Check {
    pub name: &'static str,
    /// How many things were looked at: a check of nothing says nothing.
    pub looked_at: u64,
    /// What does not hold.
    pub violations: Vec<String>,
    /// Orders and SKUs concerned, whose history is printed.
    pub concerned: BTreeSet<Uuid>,
}

impl Check {
    pub fn new(name: &'static str) -> Self {
        Self { name, looked_at: 0, violations: Vec::new(), concerned: BTreeSet::new() }
    }

    pub fn violated(&mut self, what: String) {
        self.violations.push(what);
    }
}

/// A recorded answer.
struct Recorded {
    key: String,
    request_path: String,
    request_method: String,
    response_status: i32,
    response_body: Vec<u8>,
    response_content_type: String,
    response_etag: Option<String>,
    response_location: Option<String>,
}

impl Recorded {
    fn read(row: &sqlx::postgres::PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            key: row.try_get("key")?,
            request_path: row.try_get("request_path")?,
            request_method: row.try_get("request_method")?,
            response_status: row.try_get("response_status")?,
            response_body: row.try_get("response_body")?,
            response_content_type: row.try_get("response_content_type")?,
            response_etag: row.try_get("response_etag")?,
            response_location: row.try_get("response_location")?,
        })
    }

    fn kept(&self) -> Kept {
        Kept {
            status: u16::try_from(self.response_status).unwrap_or_default(),
            body: String::from_utf8_lossy(&self.response_body).into_owned(),
            content_type: Some(self.response_content_type.clone()),
            etag: self.response_etag.clone(),
            location: self.response_location.clone(),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.response_body).unwrap_or_default()
    }

    /// `(order, rest)` of a path below an order.
    fn of_order(&self) -> Option<(Uuid, &str)> {
        let rest = self.request_path.strip_prefix("/orders/")?;
        let (order, rest) = rest.split_once('/').unwrap_or((rest, ""));
        Some((order.parse().ok()?, rest))
    }
}

/// Runs every check.
pub async fn all(
    conn: &mut PgConnection,
    world: &World,
    partner: &Partner,
    intents: &[Intent],
) -> Result<Vec<Check>> {
    let rows = sqlx::query(
        "select key, request_path, request_method, response_status, response_body, response_content_type, response_etag,
           response_location
         from idempotency_key where tenant_id = $1",
    )
    .bind(world.tenant)
    .fetch_all(&mut *conn)
    .await?;
    let recorded: Vec<Recorded> = rows.iter().map(Recorded::read).collect::<Result<_, _>>()?;
    let mut checks = vec![
        one_outcome(intents, &recorded),
        unchanged(intents, &recorded),
        no_other_key(intents, &recorded),
        expected(intents),
        moves(conn, world, &recorded, "allocate").await?,
        moves(conn, world, &recorded, "release").await?,
        versions(conn, world, &recorded).await?,
        based(intents),
        promised(&recorded),
        arrivals::inbox(conn, intents).await?,
        arrivals::delivered(conn, partner).await?,
        arrivals::levels(conn, world, partner).await?,
    ];
    checks.extend(audits::all(conn).await?);
    Ok(checks)
}

/// Every keyed request has one outcome: all its answers are equal, and equal to the recorded one.
fn one_outcome(intents: &[Intent], recorded: &[Recorded]) -> Check {
    let mut check = Check::new("one outcome per key, byte for byte");
    let by_key: HashMap<&str, &Recorded> = recorded.iter().map(|row| (row.key.as_str(), row)).collect();
    for intent in intents.iter().filter(|intent| intent.request.key.is_some()) {
        let answers: Vec<&Kept> = intent
            .tries
            .iter()
            .filter_map(|one| match &one.told {
                Told::Answer(kept) => Some(kept),
                _ => None,
            })
            .collect();
        let Some(first) = answers.first() else { continue };
        check.looked_at += answers.len() as u64;
        let row = intent.request.key.as_deref().and_then(|key| by_key.get(key));
        match row.map(|row| row.kept()) {
            None => check.violated(format!(
                "#{} {} was answered {} and nothing is recorded",
                intent.id, intent.request.path, first.status
            )),
            Some(kept) => {
                for answer in answers.iter().filter(|answer| ***answer != kept) {
                    check.violated(format!(
                        "#{} {}: told {answer:?}, recorded {kept:?}",
                        intent.id, intent.request.path
                    ));
                }
            }
        }
    }
    check
}

/// Whoever was told only that nothing was changed finds nothing changed.
fn unchanged(intents: &[Intent], recorded: &[Recorded]) -> Check {
    let mut check = Check::new("\"nothing was changed\" was true");
    let keys: BTreeSet<&str> = recorded.iter().map(|row| row.key.as_str()).collect();
    for intent in intents {
        let unchanged =
            !intent.tries.is_empty() && intent.tries.iter().all(|one| one.told == Told::Unchanged);
        if let (true, Some(key)) = (unchanged, intent.request.key.as_deref()) {
            check.looked_at += 1;
            if keys.contains(key) {
                check.violated(format!(
                    "#{} {}: told 503 unavailable, and it is recorded",
                    intent.id, intent.request.path
                ));
            }
        }
    }
    check
}

/// Every recorded key is one that was sent.
fn no_other_key(intents: &[Intent], recorded: &[Recorded]) -> Check {
    let mut check = Check::new("nothing was recorded that was not asked");
    let sent: BTreeSet<&str> = intents.iter().filter_map(|intent| intent.request.key.as_deref()).collect();
    check.looked_at = recorded.len() as u64;
    for row in recorded.iter().filter(|row| !sent.contains(row.key.as_str())) {
        check.violated(format!("key {} of {}", row.key, row.request_path));
    }
    check
}

/// No promise was made of what was not there, also if it has been given back since.
fn promised(recorded: &[Recorded]) -> Check {
    let mut check = Check::new("what was promised was there");
    let promises =
        recorded.iter().filter(|row| row.response_status == 200 && row.request_path.ends_with("/allocate"));
    for row in promises {
        let answer = row.json();
        check.looked_at += 1;
        // Of a SKU of which nothing was taken, units may be missing.
        let beyond = |line: &&Value| line["qty"] != 0 && line["atsAfter"].as_i64() < Some(0);
        for line in answer["lines"].as_array().into_iter().flatten().filter(beyond) {
            check.violated(format!("key {} of {}: {line}", row.key, row.request_path));
        }
    }
    check
}

/// No answer is one that a right request cannot get, and what nobody gave up was answered in the end.
fn expected(intents: &[Intent]) -> Check {
    let mut check = Check::new("answers are of the contract");
    for intent in intents {
        check.looked_at += 1;
        match intent.answer() {
            Some(kept) if matches!(kept.status, 200 | 201 | 404 | 409 | 412 | 422) => {}
            Some(kept) => check.violated(format!(
                "#{} {} {}: {} {}",
                intent.id, intent.request.what, intent.request.path, kept.status, kept.body
            )),
            None if intent.given_up && intent.request.delivery.is_none() => {}
            None => check.violated(format!(
                "#{} {}: no answer in {} tries, the last {:?}",
                intent.id,
                intent.request.path,
                intent.tries.len(),
                intent.tries.last()
            )),
        }
    }
    check
}

/// Successes match ledger lines one to one: per order, SKU and units.
async fn moves(
    conn: &mut PgConnection,
    world: &World,
    recorded: &[Recorded],
    kind: &'static str,
) -> Result<Check> {
    let name =
        if kind == "allocate" { "an allocation is a ledger line" } else { "a release is a ledger line" };
    let mut check = Check::new(name);
    let mut moved: BTreeMap<(Uuid, Uuid, i64), i64> = BTreeMap::new();
    for row in recorded.iter().filter(|row| row.response_status == 200) {
        let Some((order, rest)) = row.of_order() else { continue };
        if rest != kind {
            continue;
        }
        let mut units: BTreeMap<Uuid, i64> = BTreeMap::new();
        for line in row.json()["lines"].as_array().into_iter().flatten() {
            if let (Some(Ok(sku)), Some(qty)) = (line["skuId"].as_str().map(str::parse), line["qty"].as_i64())
            {
                *units.entry(sku).or_default() += qty;
            }
        }
        for (sku, qty) in units.into_iter().filter(|(_, qty)| *qty > 0) {
            *moved.entry((order, sku, qty)).or_default() += 1;
        }
    }
    let told: u64 = moved.values().map(|n| n.unsigned_abs()).sum();
    let rows: Vec<(Uuid, Uuid, i64, i64)> = sqlx::query_as(
        "select order_id, sku_id, abs(qty), count(*) from allocation_ledger
         where tenant_id = $1 and entry_type = $2 and wholesale_order_id is not null group by 1, 2, 3",
    )
    .bind(world.tenant)
    .bind(kind)
    .fetch_all(conn)
    .await?;
    for (order, sku, qty, count) in rows {
        *moved.entry((order, sku, qty)).or_default() -= count;
    }
    check.looked_at = told;
    for ((order, sku, qty), rest) in moved.into_iter().filter(|(_, rest)| *rest != 0) {
        // Closing an order releases, too.
        if kind == "release" && rest < 0 {
            continue;
        }
        check.violated(format!("order {order}, SKU {sku}, {qty} units: answers less ledger lines is {rest}"));
        check.concerned.extend([order, sku]);
    }
    Ok(check)
}

/// A save is over the version that its client had seen.
fn based(intents: &[Intent]) -> Check {
    let mut check = Check::new("a save is over what was seen");
    for intent in intents.iter().filter(|intent| intent.request.method == "PATCH") {
        let Some(kept) = intent.answer().filter(|kept| kept.status == 200) else { continue };
        let request: Value = serde_json::from_str(&intent.request.body).unwrap_or_default();
        let (base, version) = (request["baseVersion"].as_i64(), kept.json()["version"].as_i64());
        check.looked_at += 1;
        if base.map(|base| base + 1) != version {
            check.violated(format!("#{} {}: {version:?} over {base:?}", intent.id, intent.request.path));
        }
    }
    check
}

/// A version is given out once, and an order's version is one more than its saves.
async fn versions(conn: &mut PgConnection, world: &World, recorded: &[Recorded]) -> Result<Check> {
    let mut check = Check::new("versions rose by their successes");
    let mut saves: BTreeMap<Uuid, Vec<i64>> = BTreeMap::new();
    for row in recorded.iter().filter(|row| row.response_status == 200) {
        let Some((order, rest)) = row.of_order() else { continue };
        let body = row.json();
        let version = match (row.request_method.as_str(), rest) {
            ("PATCH", "") | ("POST", "cancel" | "close") => {
                body["version"].as_i64().or_else(|| body["order"]["version"].as_i64())
            }
            _ => continue,
        };
        saves.entry(order).or_default().push(version.unwrap_or_default());
    }
    let rows: Vec<(Uuid, i64)> =
        sqlx::query_as("select id, version from wholesale_order where tenant_id = $1")
            .bind(world.tenant)
            .fetch_all(conn)
            .await?;
    for (order, version) in rows {
        let mut given = saves.remove(&order).unwrap_or_default();
        given.sort_unstable();
        check.looked_at += given.len() as u64;
        let wanted: Vec<i64> = (2..=version).collect();
        if given != wanted {
            check.violated(format!("order {order} has version {version}; given out: {given:?}"));
            check.concerned.insert(order);
        }
    }
    Ok(check)
}

/// No transaction is open and nothing is locked by a function, when all sandboxes are gone.
pub async fn left_behind(conn: &mut PgConnection) -> Result<Check> {
    let mut check = Check::new("nothing is left behind");
    check.looked_at = 1;
    for _ in 0..40 {
        let rows: Vec<String> = sqlx::query_scalar(
            "select format('%s: %s for %s, %s locks', usename, state, now() - state_change,
               (select count(*) from pg_locks l where l.pid = a.pid and l.locktype = 'advisory'))
             from pg_stat_activity a where usename in ('holdfast_app', 'holdfast_worker') and datname = current_database()
               and (state <> 'idle' or exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'advisory'))",
        )
        .fetch_all(&mut *conn)
        .await?;
        check.violations = rows;
        if check.violations.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    Ok(check)
}
