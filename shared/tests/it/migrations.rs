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
