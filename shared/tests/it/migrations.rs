//! Migrations that are applied again, concurrently, or to a database with data change nothing that they should not.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testing::{Seed, Shop, migrate};

const FUNCTIONS: &str =
    "select string_agg(pg_get_functiondef(p.oid), E'\\n' order by p.oid::regprocedure::text)
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'holdfast'";
const GRANTS: &str = "select md5(string_agg(g::text, ',' order by g::text)) from (
    select grantee, table_name, privilege_type from information_schema.role_table_grants where table_schema = 'public'
    union all select grantee, routine_name, privilege_type from information_schema.role_routine_grants
      where routine_schema = 'holdfast') g";

#[tokio::test]
async fn migrating_a_database_with_data_again_changes_nothing() {
    let shop = Shop::open(Seed { skus: 3, on_hand: 10, ..Seed::default() }).await;
    shop.db.emit(&shop.tenant, 3).await;
    let before = (
        shop.db.state().await,
        shop.db.scalar::<String>(FUNCTIONS).await,
        shop.db.scalar::<String>(GRANTS).await,
    );
    for _ in 0..2 {
        migrate(&shop.db.owner_url, None).await.unwrap();
        let after = (
            shop.db.state().await,
            shop.db.scalar::<String>(FUNCTIONS).await,
            shop.db.scalar::<String>(GRANTS).await,
        );
        assert_eq!(after, before);
    }
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn senders_that_destinations_name_already_are_allowed_by_the_migration() {
    let shop = Shop::open(Seed::default()).await;
    for (kind, url) in [
        ("email", "mailto:Orders@brand.example"),
        ("email", "mailto:orders@brand.example"),
        ("email", ""),
        ("webhook", "https://partner.example/"),
    ] {
        let id = shop.db.destination(&shop.tenant, url, &["*"]).await.id;
        shop.db.execute(format!("update destination set kind = '{kind}' where id = '{id}'")).await;
    }
    // As before it.
    shop.db.execute("delete from _sqlx_migrations where version = 43; drop policy drain on aws_target").await;
    migrate(&shop.db.owner_url, None).await.unwrap();
    let allowed = "select string_agg(tenant_id || ' ' || kind || ' ' || address, ', ') from aws_target";
    assert_eq!(shop.db.text(allowed).await, format!("{} email mailto:orders@brand.example", shop.tenant.id));
}

#[tokio::test]
async fn a_function_that_was_changed_by_hand_is_restored() {
    let shop = Shop::open(Seed::default()).await;
    let before: String = shop.db.scalar(FUNCTIONS).await;
    shop.db
        .execute("create or replace function holdfast.quote(p_text text) returns text language sql immutable return 'oops'")
        .await;
    assert_ne!(shop.db.scalar::<String>(FUNCTIONS).await, before);
    migrate(&shop.db.owner_url, None).await.unwrap();
    assert_eq!(shop.db.scalar::<String>(FUNCTIONS).await, before);
}

#[tokio::test]
async fn sessions_that_work_while_functions_are_replaced_go_on() {
    let shop = Shop::open(Seed::default()).await;
    let mut app = shop.db.app().await;
    let who = format!(r#"{{"tenantId":"{}","userId":"{}"}}"#, shop.tenant.id, shop.tenant.users[0]);
    for _ in 0..2 {
        let sql = AssertSqlSafe(format!("select holdfast.is_user('{who}')"));
        assert!(sqlx::query_scalar::<_, bool>(sql).fetch_one(&mut app).await.unwrap());
        migrate(&shop.db.owner_url, None).await.unwrap();
    }
}

#[tokio::test]
async fn two_concurrent_migrations_of_an_empty_database_both_succeed() {
    let shop = Shop::open(Seed::default()).await;
    let mut owner = shop.db.owner().await;
    let name = format!("{}_empty", shop.db.name());
    sqlx::raw_sql(AssertSqlSafe(format!("create database {name}"))).execute(&mut owner).await.unwrap();
    let url = shop.db.owner_url.replace(shop.db.name(), &name);
    let (one, two) = tokio::join!(migrate(&url, None), migrate(&url, None));
    let outcome = one.and(two);
    let empty = async {
        let mut connection = PgConnection::connect(&url).await?;
        let functions: String = sqlx::query_scalar(FUNCTIONS).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(functions)
    }
    .await;
    sqlx::raw_sql(AssertSqlSafe(format!("drop database {name} with (force)")))
        .execute(&mut owner)
        .await
        .unwrap();
    outcome.unwrap();
    assert_eq!(empty.unwrap(), shop.db.scalar::<String>(FUNCTIONS).await);
}

/// What earlier releases knew of channel orders: one that is open and lacks two units; one that was shipped though it lacked two,
/// which the books owe; one of which two units were written off.
const CHANNEL_ORDERS_BEFORE: &str = "
    insert into tenant (id, name) values ('00000000-0000-0000-0000-000000000001', 't');
    insert into style (tenant_id, id, name, currency, wholesale_minor, msrp_minor)
      select id, id, 's', 'USD', 1, 1 from tenant;
    insert into sku (tenant_id, id, code, style_id)
      select t.id, ('00000000-0000-0000-0000-00000000000' || n)::uuid, 'SKU-' || n, t.id from tenant t, generate_series(1, 3) n;
    update sku_position set (on_hand, allocated) = (case right(sku_id::text, 1) when '1' then 3 when '2' then 0 else 8 end,
      case right(sku_id::text, 1) when '1' then 3 when '2' then 0 else 2 end);
    insert into channel_order (tenant_id, id, shop_domain, external_id, fulfilled_at)
      select t.id, ('00000000-0000-0000-0000-0000000000a' || n)::uuid, 'a.myshopify.com', n::text, case n when 2 then now() end
      from tenant t, generate_series(1, 3) n;
    insert into shortfall (tenant_id, id, sku_id, qty, cause, owed_on_hand)
      select t.id, ('00000000-0000-0000-0000-0000000000b' || n)::uuid, ('00000000-0000-0000-0000-00000000000' || n)::uuid, 2,
        'channel_order', case n when 2 then 2 else 0 end from tenant t, generate_series(1, 2) n;
    insert into channel_order_line (tenant_id, channel_order_id, external_id, sku_id, qty, qty_allocated, qty_gone, qty_short, qty_owed,
      qty_needed, shortfall_id)
      select t.id, ('00000000-0000-0000-0000-0000000000a' || n)::uuid, 'line', ('00000000-0000-0000-0000-00000000000' || n)::uuid,
        l[1], l[2], l[3], l[4], l[5], l[1], case when l[4] > 0 then ('00000000-0000-0000-0000-0000000000b' || n)::uuid end
      from tenant t, (values (1, array[5, 3, 0, 2, 0]), (2, array[5, 0, 3, 2, 2]), (3, array[4, 2, 2, 0, 0])) v(n, l);
    insert into channel_refund_line (tenant_id, channel_order_id, external_id, line_external_id, qty, restock_type)
      select id, '00000000-0000-0000-0000-0000000000a3', 'r', 'line', 2, 'no_restock' from tenant;";

#[tokio::test]
async fn channel_orders_of_earlier_releases_keep_what_they_have() {
    let shop = Shop::open(Seed::default()).await;
    let mut owner = shop.db.owner().await;
    let name = format!("{}_before", shop.db.name());
    sqlx::raw_sql(AssertSqlSafe(format!("create database {name}"))).execute(&mut owner).await.unwrap();
    let url = shop.db.owner_url.replace(shop.db.name(), &name);
    let told = async {
        let mut before = PgConnection::connect(&url).await?;
        let files = testing::all_files();
        let (numbered, functions): (Vec<_>, Vec<_>) = files
            .into_iter()
            .filter(|(path, _)| !path.starts_with("roles"))
            .partition(|(path, _)| path.starts_with("00"));
        let (earlier, later): (Vec<_>, Vec<_>) = numbered.into_iter().partition(|(path, _)| *path < "0013");
        for (_, sql) in earlier {
            sqlx::raw_sql(sql).execute(&mut before).await?;
        }
        sqlx::raw_sql(CHANNEL_ORDERS_BEFORE).execute(&mut before).await?;
        for (_, sql) in later.into_iter().chain(functions) {
            sqlx::raw_sql(sql).execute(&mut before).await?;
        }
        let state = "select string_agg(concat_ws(' ', qty_wanted, qty_written_off, qty_shipped, qty_held, qty_lost, qty_counted), ', '
            order by external_id) from channel_hold";
        let held: String = sqlx::query_scalar(state).fetch_one(&mut before).await?;
        let news: i64 = sqlx::query_scalar(
            "select count(*) from channel_order o cross join lateral holdfast.channel_news(o.tenant_id, o.id) n",
        )
        .fetch_one(&mut before)
        .await?;
        before.close().await?;
        Ok::<_, sqlx::Error>((held, news))
    }
    .await;
    sqlx::raw_sql(AssertSqlSafe(format!("drop database {name} with (force)")))
        .execute(&mut owner)
        .await
        .unwrap();
    let (held, news) = told.unwrap();
    assert_eq!(
        held, "5 0 0 3 0 2, 0 0 5 0 0 0, 2 2 0 2 2 0",
        "wanted, written off, shipped, held, lost, counted"
    );
    assert_eq!(news, 0, "the facts say what the orders have: the next delivery moves nothing");
}
