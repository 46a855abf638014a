//! What PostgreSQL writes into its own log when a statement fails: why, and nothing of what the statement carried.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testing::{Seed, Shop, left_out};

/// What no log may hold, however it is written.
const SECRET: &str = "whsec_TWV0IGhlcmUsIGFuZCBub3doZXJlIGVsc2U=";
const BODY: &str = "jo@buyer.test lives at 7 Elm Street";

/// The log that the server's sessions write to.
const LOG: &str = "coalesce('./' || pg_current_logfile(), '/proc/self/fd/2')";

async fn size(owner: &mut PgConnection) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(format!("select size from pg_stat_file({LOG})")))
        .fetch_one(owner)
        .await
        .unwrap_or(0)
}

/// What was logged since the log had this size, or nothing where it is no file that the owner can read.
async fn logged_since(owner: &mut PgConnection, from: i64) -> String {
    let to = size(owner).await;
    let read = format!("select convert_from(pg_read_binary_file({LOG}, {from}, {}), 'UTF8')", to - from);
    if to > from {
        sqlx::query_scalar(AssertSqlSafe(read)).fetch_one(owner).await.unwrap()
    } else {
        String::new()
    }
}

/// A call as Rust sends it: one jsonb of hex digits.
fn call(function: &str, argument: &str) -> String {
    format!("select * from holdfast.{function}(holdfast.json('\\x{}'))", hex::encode(argument))
}

/// Sends a statement that must fail, as this role.
async fn fails(conn: &mut PgConnection, sql: String, code: &str) {
    let error = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await.unwrap_err();
    let found = error.as_database_error().and_then(|db| db.code()).map(|found| found.into_owned());
    assert_eq!(found.as_deref(), Some(code), "{error}");
    sqlx::raw_sql("rollback").execute(conn).await.unwrap();
}

#[tokio::test]
async fn a_statement_that_fails_leaves_neither_secret_nor_body_in_the_servers_log() {
    let shop = Shop::open(Seed::default()).await;
    let mut owner = shop.db.owner().await;
    let before = size(&mut owner).await;
    let marker = uuid::Uuid::new_v4();
    sqlx::raw_sql(AssertSqlSafe(format!("do $$ begin raise log 'begin {marker}'; end $$")))
        .execute(&mut owner)
        .await
        .unwrap();
    if !logged_since(&mut owner, before).await.contains(&format!("begin {marker}")) {
        left_out("the server's log is no file that a test can read");
        return;
    }
    let (tenant, user) = (shop.tenant.id, shop.tenant.users[0]);
    let destination = uuid::Uuid::new_v4();
    shop.db
        .execute(format!(
            "insert into destination (tenant_id, id, name, kind, url, event_types)
               values ('{tenant}', '{destination}', 'd', 'webhook', 'https://a.example/', array['*']);
             create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
             create trigger refuse before insert on outbox_audit for each row execute function refuse();
             create trigger refuse before insert on webhook_inbox for each row when (new.event_id = 'refused') execute function refuse();
             create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(20); return new; end $$;
             create trigger slow before insert on webhook_inbox for each row when (new.event_id = 'slow') execute function slow()"
        ))
        .await;
    let rotate = |id: &str| {
        call(
            "rotate_secret",
            &format!(
                r#"{{"tenantId":"{tenant}","userId":"{user}","actor":"user:x","id":"{id}","secret":"{SECRET}","overlapHours":1}}"#
            ),
        )
    };
    let receive = |event: &str, command: &str| {
        let delivery = format!(
            r#"{{"provider":"3pl:north","eventId":"{event}","topic":"t","fault":null,"command":{command}}}"#
        );
        format!(
            "select holdfast.receive(holdfast.json('\\x{}'), '\\x{}')",
            hex::encode(delivery),
            hex::encode(format!(r#"{{"note":"{BODY}"}}"#))
        )
    };
    for role in ["app", "worker"] {
        let mut conn = if role == "app" {
            shop.db.app().await
        } else {
            PgConnection::connect(&shop.db.worker_url).await.unwrap()
        };
        let as_tenant = format!("begin; select set_config('app.tenant_id', '{tenant}', true);");
        // What a function itself raises, with a secret in hand.
        if role == "app" {
            fails(&mut conn, format!("{as_tenant} {}", rotate(&destination.to_string())), "P0001").await;
        }
        // A lock that somebody holds.
        let mut holder = shop.db.owner().await;
        sqlx::raw_sql("begin; select from destination for update").execute(&mut holder).await.unwrap();
        let lock_time = "set local lock_timeout = '50ms';";
        if role == "app" {
            fails(
                &mut conn,
                format!("{as_tenant} {lock_time} {}", rotate(&destination.to_string())),
                "55P03",
            )
            .await;
        }
        sqlx::raw_sql("rollback").execute(&mut holder).await.unwrap();
        // Time that is up; an argument that is no id; JSON that holds what no text can; a right that is missing.
        fails(
            &mut conn,
            format!("{as_tenant} set local statement_timeout = '50ms'; select pg_sleep(9), '{BODY}'"),
            "57014",
        )
        .await;
        fails(&mut conn, format!("{as_tenant} {}", rotate("nobody")), "22P02").await;
        let odd = format!(r#"{{"secret":"{SECRET}","note":"{BODY} \u0000"}}"#);
        fails(&mut conn, call("rotate_secret", &odd), "22P05").await;
        fails(&mut conn, format!("{as_tenant} delete from tenant where name = '{BODY}'"), "42501").await;
        fails(&mut conn, format!("selekt '{BODY}'"), "42601").await;
        if role == "app" {
            fails(
                &mut conn,
                format!("{as_tenant} set local statement_timeout = '50ms'; {}", receive("slow", "null")),
                "57014",
            )
            .await;
            fails(&mut conn, receive("refused", "null"), "P0001").await;
            // Constraints: the server would show the row that fails.
            let row = format!("insert into outbox (tenant_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload)
                values ('{tenant}', gen_random_uuid(), 'order', gen_random_uuid(), 1, 'x', '{BODY}')");
            fails(&mut conn, format!("{as_tenant} {row}"), "23514").await;
        }
    }
    let log = logged_since(&mut owner, before).await;
    let errors = log.matches("ERROR:").count();
    assert!(errors >= 10, "the failures are logged: {errors}\n{log}");
    for secret in [SECRET, BODY] {
        for form in
            [secret.to_owned(), hex::encode(secret), secret[..20].to_owned(), hex::encode(&secret[..20])]
        {
            let line = log.lines().find(|line| line.contains(&form));
            assert_eq!(line, None, "the server's log holds {form:?}");
        }
    }
}
