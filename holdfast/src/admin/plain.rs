//! What an operator did wrong, in words, where the database only names a constraint.

use anyhow::{Error, anyhow};

/// The same error, with a sentence instead of the database's own where there is one for it.
pub fn told(error: Error) -> Error {
    let mut said = Vec::new();
    for cause in error.chain() {
        if let Some(sql) = cause.downcast_ref::<sqlx::Error>() {
            let constraint = sql.as_database_error().and_then(|refused| refused.constraint());
            return match constraint.and_then(words) {
                Some(words) => {
                    said.push(words.to_owned());
                    anyhow!(said.join(": "))
                }
                None => error,
            };
        }
        said.push(cause.to_string());
    }
    error
}

fn words(constraint: &str) -> Option<&'static str> {
    Some(match constraint {
        "api_key_tenant_id_app_user_id_fkey" => "this tenant has no user with this id",
        "style_wholesale_minor_check" | "style_msrp_minor_check" => {
            "a price is an integer from 0 to 10000000000, in minor units"
        }
        "customer_credit_limit_minor_check" => "a credit limit is 0 or more, in minor units",
        name if name.ends_with("_currency_check") => "a currency is three capital letters, like USD",
        name if name.ends_with("_tenant_id_fkey") => "there is no tenant with this id",
        name if name.ends_with("_pkey") => "it is there already",
        _ => return None,
    })
}
