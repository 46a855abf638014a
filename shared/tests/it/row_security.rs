//! Row-level security: a query without a tenant returns nothing, and no tenant writes rows of another.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use testing::{Seed, Shop, issue_api_key};
use uuid::Uuid;

async fn rows(connection: &mut PgConnection, sql: String) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await
}

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().unwrap().code().unwrap().into_owned()
}

async fn become_tenant(app: &mut PgConnection, tenant: Uuid) {
    sqlx::query("select set_config('app.tenant_id', $1, false)")
        .bind(tenant.to_string())
        .execute(app)
        .await
        .unwrap();
}

/// Tables and views with a tenant column, and whether the role may read them.
async fn tenant_tables(owner: &mut PgConnection, role: &str) -> Vec<(String, bool)> {
    let sql = "select distinct c.table_name::text, has_table_privilege($1, 'public.' || c.table_name, 'select') as readable
        from information_schema.columns c where c.table_schema = 'public'
          and (c.column_name = 'tenant_id' or c.table_name = 'tenant') order by 1";
    let rows = sqlx::query(sql).bind(role).fetch_all(owner).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn shop_with_rows() -> Shop {
    let shop = Shop::open(Seed { on_hand: 10, ..Seed::default() }).await;
    let (tenant, order, sku, customer) =
        (shop.tenant.id, shop.tenant.orders[0], shop.tenant.skus[0], shop.tenant.customer);
    shop.db.destination(&shop.tenant, "https://all.test", &["*"]).await;
    issue_api_key(&shop.db, tenant, shop.tenant.users[0], &["orders:write"]).await;
    shop.db
        .execute(format!(
            "insert into shopify_shop (domain, tenant_id) values ('a.myshopify.test', '{tenant}');
             insert into threepl_account (id, tenant_id, secret) values ('acct', '{tenant}', 'whsec_eA==');
             insert into invoice (tenant_id, customer_id, total_minor, currency) values ('{tenant}', '{customer}', 1, 'USD');
             insert into idempotency_key (tenant_id, key, request_method, request_path, request_hash, response_status,
               response_body, response_content_type) values ('{tenant}', 'k', 'POST', '/x', sha256('x'), 200, 'x', 'x');
             begin;
             insert into allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor)
               values ('{tenant}', '{order}', '{sku}', 4, 'allocate', 'test');
             update order_line set qty_allocated = 4 where order_id = '{order}' and sku_id = '{sku}';
             update sku_position set allocated = 4 where sku_id = '{sku}';
             commit"
        ))
        .await;
    shop.db.emit(&shop.tenant, 2).await;
    shop
}

#[tokio::test]
async fn every_table_with_a_tenant_is_under_row_level_security() {
    let shop = Shop::open(Seed::default()).await;
    let open = "pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'public' and c.relkind in ('r', 'p') and not c.relrowsecurity and c.relname <> '_sqlx_migrations'";
    assert_eq!(shop.db.count(open).await, 0, "a table without row-level security");
    let views = "pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'public' and c.relkind = 'v' and not coalesce('security_invoker=true' = any (c.reloptions), false)";
    assert_eq!(shop.db.count(views).await, 0, "a view that is not security invoker");
    let definers = "pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname in ('holdfast', 'public') and p.prosecdef and p.proname not like 'tenant\\_of\\_%'";
    assert_eq!(shop.db.count(definers).await, 0, "a security definer function that is not a resolver");
    let resolvers = "pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'holdfast' and p.prosecdef and (p.prorettype <> 'uuid'::regtype or p.proretset
          or has_function_privilege('holdfast_worker', p.oid, 'execute') or p.proconfig is null)";
    assert_eq!(
        shop.db.count(resolvers).await,
        0,
        "a resolver that returns more than a tenant id, or to the wrong role"
    );
    let roles = "pg_roles where rolname in ('holdfast_app', 'holdfast_worker') and (rolsuper or rolbypassrls or rolcreaterole or rolcreatedb)";
    assert_eq!(shop.db.count(roles).await, 0);
    assert_eq!(
        shop.db
            .count("pg_class c join pg_roles r on r.oid = c.relowner where r.rolname like 'holdfast%'")
            .await,
        0
    );
}

#[tokio::test]
async fn without_a_tenant_the_app_role_sees_nothing_and_with_one_only_its_own() {
    let shop = shop_with_rows().await;
    let other = shop.db.seed(Seed::default()).await;
    let (mut owner, mut app) = (shop.db.owner().await, shop.db.app().await);
    let tables = tenant_tables(&mut owner, "holdfast_app").await;
    assert!(tables.len() >= 17);
    for (table, readable) in &tables {
        let column = if table == "tenant" { "id" } else { "tenant_id" };
        if !readable {
            let error = rows(&mut app, format!("select count(*) from {table}")).await.unwrap_err();
            assert_eq!(code(&error), "42501", "{table}");
            continue;
        }
        for unset in ["", "reset app.tenant_id", "set app.tenant_id = ''"] {
            app.execute(sqlx::raw_sql(AssertSqlSafe(unset.to_owned()))).await.unwrap();
            assert_eq!(
                rows(&mut app, format!("select count(*) from {table}")).await.unwrap(),
                0,
                "{table} after {unset:?}"
            );
        }
        for tenant in [shop.tenant.id, other.id] {
            become_tenant(&mut app, tenant).await;
            let mine = rows(&mut app, format!("select count(*) from {table}")).await.unwrap();
            let own = format!("select count(*) from {table} where {column} = '{tenant}'");
            assert_eq!(mine, rows(&mut owner, own).await.unwrap(), "{table}");
        }
        app.execute("reset app.tenant_id").await.unwrap();
        let of_shop = format!("select count(*) from {table} where {column} = '{}'", shop.tenant.id);
        let audit = table.ends_with("_audit");
        assert!(
            audit || rows(&mut owner, of_shop).await.unwrap() > 0 || !table.starts_with("idem"),
            "{table} has rows to hide"
        );
    }
}

#[tokio::test]
async fn the_app_role_writes_nothing_for_another_tenant_and_rewrites_no_ledger() {
    let shop = shop_with_rows().await;
    let other = shop.db.seed(Seed::default()).await;
    let before = shop.db.state().await;
    let mut app = shop.db.app().await;
    become_tenant(&mut app, shop.tenant.id).await;
    let (tenant, order, sku) = (other.id, other.orders[0], other.skus[0]);
    for sql in [
        format!("insert into allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor) values ('{tenant}', '{order}', '{sku}', 1, 'allocate', 'x')"),
        format!(
            "insert into idempotency_key (tenant_id, key, request_method, request_path, request_hash, response_status, response_body,
               response_content_type) values ('{tenant}', 'k', 'POST', '/x', sha256('x'), 200, 'x', 'x')"
        ),
        format!(
            "insert into outbox (tenant_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload, processed_at)
               values ('{tenant}', gen_random_uuid(), 'sku', '{sku}', 99, 'x', '{{}}', now())"
        ),
        "update sku_position set tenant_id = gen_random_uuid()".into(),
        "update allocation_ledger set actor = 'x'".into(),
        "delete from allocation_ledger".into(),
        "truncate allocation_ledger".into(),
        "update stock_ledger set actor = 'x'".into(),
        "delete from stock_ledger".into(),
        "delete from idempotency_key".into(),
        "update idempotency_key set response_status = 200".into(),
        "delete from outbox".into(),
        "alter table sku_position disable row level security".into(),
        "alter table allocation_ledger disable trigger all".into(),
        "set session_replication_role = replica".into(),
        "create table public.mine (a int)".into(),
        "create function holdfast.mine() returns int language sql return 1".into(),
        "set role postgres".into(),
        format!("select holdfast.rebuild_positions('{}')", shop.tenant.id),
    ] {
        let error = app.execute(sqlx::raw_sql(AssertSqlSafe(sql.clone()))).await.expect_err(&sql);
        assert_eq!(code(&error), "42501", "{sql}: {error}");
    }
    for sql in [
        format!("update sku_position set allocated = 0 where sku_id = '{sku}'"),
        format!("update order_line set qty_allocated = 0 where order_id = '{order}'"),
        format!("update wholesale_order set event_sequence = 0 where id = '{order}'"),
        format!("update customer set credit_limit_minor = null where tenant_id = '{tenant}'"),
    ] {
        let done = app.execute(sqlx::raw_sql(AssertSqlSafe(sql.clone()))).await.unwrap();
        assert_eq!(done.rows_affected(), 0, "{sql}");
    }
    assert_eq!(shop.db.state().await, before);
}

#[tokio::test]
async fn the_worker_reads_other_tenants_only_in_the_tables_it_drains() {
    let shop = shop_with_rows().await;
    let mut owner = shop.db.owner().await;
    let mut worker = PgConnection::connect(&shop.db.worker_url).await.unwrap();
    let drained = [
        "aws_target",
        "outbox",
        "destination",
        "destination_secret",
        "idempotency_key",
        "inventory_snapshot",
        "rearrangement",
        "reconcile_finding",
        "reconcile_run",
        "shopify_question",
        "sync_checkpoint",
        "tenant",
        "threepl_inventory",
    ];
    for (table, readable) in tenant_tables(&mut owner, "holdfast_worker").await {
        if drained.contains(&table.as_str()) {
            continue;
        }
        assert!(
            !readable || rows(&mut worker, format!("select count(*) from {table}")).await.unwrap() == 0,
            "the worker reads {table}"
        );
        let error = rows(
            &mut worker,
            format!("with gone as (delete from {table} returning 1) select count(*) from gone"),
        )
        .await
        .unwrap_err();
        assert!(["42501", "55000"].contains(&code(&error).as_str()), "{table}: {error}");
    }
    assert_eq!(rows(&mut worker, "select count(*) from outbox".into()).await.unwrap(), 2);
}

#[tokio::test]
async fn a_resolver_returns_a_tenant_id_for_a_known_credential_only() {
    let shop = shop_with_rows().await;
    let mut app = shop.db.app().await;
    for (sql, expected) in [
        ("select holdfast.tenant_of_api_key((select sha256('nothing')))".to_owned(), None),
        ("select holdfast.tenant_of_api_key(null)".to_owned(), None),
        ("select holdfast.tenant_of_shop('A.MYSHOPIFY.test')".to_owned(), Some(shop.tenant.id)),
        ("select holdfast.tenant_of_shop('b.myshopify.test')".to_owned(), None),
        ("select holdfast.tenant_of_threepl_account('acct')".to_owned(), Some(shop.tenant.id)),
        ("select holdfast.tenant_of_threepl_account('%')".to_owned(), None),
        (format!("select holdfast.tenant_of_invoice('{}')", Uuid::new_v4()), None),
    ] {
        let tenant: Option<Uuid> =
            sqlx::query_scalar(AssertSqlSafe(sql.clone())).fetch_one(&mut app).await.unwrap();
        assert_eq!(tenant, expected, "{sql}");
    }
}

#[tokio::test]
async fn a_policy_is_the_key_of_an_index_and_is_not_asked_row_by_row() {
    let shop = shop_with_rows().await;
    let mut app = shop.db.app().await;
    for table in [
        "sku",
        "sku_position",
        "wholesale_order",
        "order_line",
        "allocation_ledger",
        "stock_ledger",
        "invoice",
        "idempotency_key",
        "outbox",
    ] {
        let plan: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(format!("explain (costs off) select count(*) from {table}")))
                .fetch_all(&mut app)
                .await
                .unwrap();
        assert!(plan.iter().any(|line| line.contains("Index Cond: (tenant_id = ")), "{table}: {plan:#?}");
        let filters = plan.iter().filter(|line| line.contains("Filter") && line.contains("current_setting"));
        assert_eq!(filters.count(), 0, "{table}: {plan:#?}");
    }
}
