//! Every order of arrival of one channel order's events ends in the same state.

use testing::orders_of_arrival;

use super::*;

/// The events of a case, and the end of its two SKUs: decrease of `on_hand`, allocated.
type Story = (&'static str, fn(i64) -> Vec<(&'static str, Value)>, [i64; 2]);

fn body(id: i64) -> Value {
    order(id, &[(id * 100 + 1, 0, 5), (id * 100 + 2, 0, 2), (id * 100 + 3, 1, 3)])
}

fn shipped_and_partly_refunded(id: i64) -> Vec<(&'static str, Value)> {
    let line = id * 100;
    vec![
        ("orders/create", body(id)),
        ("orders/fulfilled", body(id)),
        (
            "refunds/create",
            refund(id, &[(line + 51, line + 1, 2, "return"), (line + 52, line + 3, 1, "no_restock")]),
        ),
        (
            "refunds/create",
            refund(id, &[(line + 53, line + 1, 1, "no_restock"), (line + 54, line + 2, 2, "cancel")]),
        ),
    ]
}

fn refunded_and_cancelled(id: i64) -> Vec<(&'static str, Value)> {
    let line = id * 100;
    let mut cancelled = body(id);
    cancelled["refunds"] =
        json!([{"refund_line_items": refund_lines(&[(line + 51, line + 1, 2, "legacy_restock")])}]);
    vec![
        ("orders/create", body(id)),
        ("refunds/create", refund(id, &[(line + 51, line + 1, 2, "legacy_restock")])),
        ("refunds/create", refund(id, &[(line + 52, line + 3, 1, "no_restock")])),
        ("orders/cancelled", cancelled),
        ("orders/fulfilled", body(id)),
    ]
}

const STORIES: [Story; 2] = [
    ("shipped and partly refunded", shipped_and_partly_refunded, [3, 3]),
    ("refunded and cancelled", refunded_and_cancelled, [0, 1]),
];

#[tokio::test]
async fn every_order_of_arrival_with_duplicates_ends_in_the_same_state() {
    let (shop, webhook) = open(Seed { skus: 2, on_hand: 1_000, ..Seed::default() }).await;
    let (mut id, mut left) = (0, [1_000, 1_000]);
    for (name, story, gone) in STORIES {
        let count = story(1).len();
        for (index, arrival) in orders_of_arrival(count).iter().enumerate() {
            id += 1;
            let events = story(id);
            for (place, fact) in arrival.iter().enumerate() {
                let (topic, event) = &events[*fact];
                took(&webhook, &format!("{id}-{fact}"), topic, event).await;
                let again = arrival[(place * index) % (place + 1)];
                let (topic, event) = &events[again];
                assert_eq!(tell(&webhook, &format!("{id}-{again}"), topic, event).await.json(), duplicate());
                took(&webhook, &format!("{id}-again-{place}"), topic, event).await;
            }
            left = [left[0] - gone[0], left[1] - gone[1]];
            assert_eq!(
                positions(&shop).await,
                format!("{} 0, {} 0", left[0], left[1]),
                "{name}: {arrival:?}"
            );
        }
    }
    assert_eq!(shop.db.count("inbox_exception").await + shop.db.count("shortfall").await, 0);
    shop.db.assert_consistent().await;
}
