//! Every order of arrival of one ASN's events ends in the same state.

use testing::orders_of_arrival;

use super::*;

#[tokio::test]
async fn every_order_of_arrival_with_duplicates_ends_in_the_same_state() {
    let (shop, webhook) = open(Seed { skus: 2, on_hand: 0, ..Seed::default() }).await;
    for (story, end) in [("closed", [8, 1]), ("cancelled", [8, 1])] {
        for (index, order) in orders_of_arrival(4).iter().enumerate() {
            let asn = format!("{story}{index}");
            let of = |receipt: &str| format!("{asn}-{receipt}");
            let before = positions(&shop).await;
            let events = [
                announced(&asn, &[("1", 0, 10), ("2", 1, 1)]),
                arrived(&asn, &of("R1"), &[("1", 0, 3)], false),
                arrived(&asn, &of("R2"), &[("1", 0, 5), ("2", 1, 1)], story == "closed"),
                if story == "closed" { arrived(&asn, &of("R3"), &[], true) } else { cancelled(&asn) },
            ];
            for (place, fact) in order.iter().enumerate() {
                took(&webhook, &format!("{asn}-{fact}"), &events[*fact]).await;
                let again = order[(place * index) % (place + 1)];
                assert_eq!(
                    tell(&webhook, &format!("{asn}-{again}"), &events[again]).await.json(),
                    duplicate()
                );
                took(&webhook, &format!("{asn}-again-{place}"), &events[again]).await;
            }
            let on_hand: Vec<i64> =
                before.split(", ").map(|p| p.split(' ').next().unwrap().parse().unwrap()).collect();
            let wanted = format!("{} 0 0, {} 0 0", on_hand[0] + end[0], on_hand[1] + end[1]);
            assert_eq!(positions(&shop).await, wanted, "{story} {order:?}");
        }
    }
    assert_eq!(shop.db.count("inbox_exception where resolved_at is null").await, 0);
    shop.db.assert_consistent().await;
}
