//! Stripe's amounts in the minor units of ISO 4217.

use crate::http::json::MAX_SAFE_INTEGER;

/// Hundredths that Stripe counts of a currency that has none in ISO 4217.
const HUNDREDTHS_AT_STRIPE: [&str; 2] = ["ISK", "UGX"];
/// Counted in whole units by Stripe, in hundredths by ISO 4217. All other currencies agree: those without a minor unit (BIF, CLP,
/// DJF, GNF, JPY, KMF, KRW, PYG, RWF, VND, VUV, XAF, XOF, XPF), those with three digits, and HUF and TWD, which are special only
/// in payouts.
const WHOLE_AT_STRIPE: [&str; 1] = ["MGA"];

/// The amount in ISO 4217 minor units, or why it is none. It is not negative.
pub(super) fn of_stripe(amount: i64, currency: &str) -> Result<i64, &'static str> {
    if HUNDREDTHS_AT_STRIPE.contains(&currency) {
        return if amount % 100 == 0 { Ok(amount / 100) } else { Err("is no whole amount") };
    }
    let minor = if WHOLE_AT_STRIPE.contains(&currency) { amount.checked_mul(100) } else { Some(amount) };
    minor.filter(|minor| *minor <= MAX_SAFE_INTEGER).ok_or("is too large a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_special_currency_of_stripe_is_read_in_iso_minor_units() {
        let zero_decimal = [
            "BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "PYG", "RWF", "VND", "VUV", "XAF", "XOF", "XPF",
        ];
        let as_iso = ["USD", "EUR", "HUF", "TWD", "BHD", "JOD", "KWD", "OMR", "TND"];
        for currency in zero_decimal.into_iter().chain(as_iso) {
            assert_eq!(of_stripe(5_000, currency), Ok(5_000), "{currency}");
        }
        for currency in ["ISK", "UGX"] {
            assert_eq!(of_stripe(5_000, currency), Ok(50), "{currency}");
            assert_eq!(of_stripe(5_050, currency), Err("is no whole amount"), "{currency}");
        }
        assert_eq!(of_stripe(50, "MGA"), Ok(5_000));
        for (amount, currency) in
            [(i64::MAX, "MGA"), (MAX_SAFE_INTEGER / 100 + 1, "MGA"), (MAX_SAFE_INTEGER + 1, "USD")]
        {
            assert_eq!(of_stripe(amount, currency), Err("is too large a number"), "{amount} {currency}");
        }
    }
}
