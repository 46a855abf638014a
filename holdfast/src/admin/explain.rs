//! Explains an operator's mistake in words where the database only names the violated constraint, or what it lacks.

use anyhow::{Error, anyhow};
use sqlx::error::DatabaseError;

/// Replaces the database's error by an explanation, if there is one.
pub fn explain(error: Error) -> Error {
    let mut context = Vec::new();
    for cause in error.chain() {
        if let Some(sql) = cause.downcast_ref::<sqlx::Error>() {
            return match sql.as_database_error().and_then(of_refusal) {
                Some(explanation) => {
                    context.push(explanation.to_owned());
                    anyhow!(context.join(": "))
                }
                None => error,
            };
        }
        context.push(cause.to_string());
    }
    error
}

fn of_refusal(refused: &dyn DatabaseError) -> Option<&'static str> {
    match refused.code().as_deref() {
        // undefined_table, invalid_schema_name
        Some("42P01" | "3F000") => Some("this database has not been migrated: run `holdfast migrate` first"),
        // undefined_column, undefined_function
        Some("42703" | "42883") => {
            Some("this database is older than this program: run `holdfast migrate` first")
        }
        _ => refused.constraint().and_then(of_constraint),
    }
}

fn of_constraint(constraint: &str) -> Option<&'static str> {
    Some(match constraint {
        "api_key_tenant_id_app_user_id_fkey" => "this tenant has no user with this id",
        "style_wholesale_minor_check" | "style_msrp_minor_check" => {
            "a price is an integer from 0 to 10000000000, in minor units"
        }
        "customer_credit_limit_minor_check" => "a credit limit is 0 or more, in minor units",
        name if name.ends_with("_currency_check") => "a currency is three capital letters, like USD",
        name if name.ends_with("_tenant_id_fkey") => "there is no tenant with this id",
        name if name.ends_with("_pkey") => "it exists already",
        _ => return None,
    })
}
