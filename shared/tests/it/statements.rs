//! Calls every function of the schema `holdfast`, so that a wrong name in its body is found before it is deployed.

use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use testing::{Seed, Shop};

/// Class 42: unknown tables, columns or functions, ambiguous names, wrong types; but not 42501, permission denied.
fn is_wrong_name(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|e| e.code()).unwrap_or_default();
    code.starts_with("42") && code != "42501"
}

#[tokio::test]
async fn no_function_uses_an_unknown_name() {
    let shop = Shop::open(Seed::default()).await;
    let mut owner = shop.db.owner().await;
    // No function may depend on the caller's search_path.
    owner.execute("set search_path = ''").await.unwrap();
    let functions = sqlx::query(
        "select p.oid::regprocedure::text as name, p.proname::text as bare, pronargs - pronargdefaults as needed,
                array(select format_type(t, null) from unnest(p.proargtypes) t)::text[] as types
         from pg_proc p join pg_namespace n on n.oid = p.pronamespace
         where n.nspname = 'holdfast' and p.prorettype <> 'trigger'::regtype order by 1",
    )
    .fetch_all(&mut owner)
    .await
    .unwrap();
    assert!(functions.len() > 15, "{}", functions.len());
    let tenant = shop.tenant.id;
    for function in functions {
        let (name, bare, types): (String, String, Vec<String>) =
            (function.get("name"), function.get("bare"), function.get("types"));
        let with = |argument: &dyn Fn(&str) -> String| {
            let arguments: Vec<String> = types.iter().map(|of| format!("{}::{of}", argument(of))).collect();
            format!("select * from holdfast.{bare}({})", arguments.join(", "))
        };
        let nulls = with(&|_| "null".into());
        let values = with(&|of| match of {
            "uuid" => format!("'{tenant}'"),
            "uuid[]" => format!("array['{tenant}']"),
            "jsonb" | "json" => format!(r#"'{{"tenantId":"{tenant}","userId":"{tenant}","lines":[]}}'"#),
            "bigint" | "integer" | "numeric" => "1".into(),
            "bigint[]" => "array[1]".into(),
            "text" => "'x'".into(),
            "text[]" => "array['x']".into(),
            "bytea" => "'\\x7b7d'".into(),
            "boolean" => "true".into(),
            "timestamp with time zone" => "now()".into(),
            _ => "null".into(),
        });
        for sql in [nulls, values] {
            let mut transaction = owner.begin().await.unwrap();
            let done = transaction.execute(sqlx::raw_sql(AssertSqlSafe(sql.clone()))).await;
            if let Err(error) = done {
                assert!(!is_wrong_name(&error), "{name}: {sql}: {error}");
            }
            transaction.rollback().await.unwrap();
        }
    }
}

#[tokio::test]
async fn functions_that_move_stock_refuse_other_isolation_than_read_committed() {
    let shop = Shop::open(Seed::default()).await;
    let mut app = shop.db.app().await;
    let call = format!(
        r#"{{"tenantId":"{}","userId":"{}","key":"k","hash":"00"}}"#,
        shop.tenant.id, shop.tenant.users[0]
    );
    for level in ["repeatable read", "serializable"] {
        let sql = format!("begin isolation level {level}; select holdfast.claim('{call}')");
        let error = app.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("25000"), "{error}");
        app.execute("rollback").await.unwrap();
    }
}
