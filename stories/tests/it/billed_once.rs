//! Histories of an order and its bills that were told by hand, against the model of `billing`.

use crate::billing::live;
use crate::books::Step;

/// One history in which every kind of step goes through: what `billing` rolls at random can happen.
#[tokio::test]
async fn a_history_of_every_kind_of_step_agrees_with_the_model() {
    let allocate = |order, sku, qty| Step::Allocate { order, sku, qty, partial: false };
    let ship = |order, sku, qty| Step::Ship { order, sku, qty };
    let steps = [
        allocate(0, 0, 7),
        allocate(0, 1, 3),
        Step::Invoice { order: 0 },
        // Dearer and cheaper; three more are ordered than are held, and one.
        Step::Save { order: 0, lines: [(3, 3), (1, 1)] },
        Step::Release { order: 0, sku: 0, qty: 2 },
        Step::Void { invoice: 0 },
        Step::Allocate { order: 0, sku: 0, qty: 9, partial: true },
        ship(0, 0, 4),
        Step::Invoice { order: 0 },
        Step::Pay { invoice: 1, hundredths: 40 },
        Step::Pay { invoice: 1, hundredths: 100 },
        Step::Bounce { invoice: 1 },
        Step::Close { order: 0 },
        allocate(1, 0, 5),
        Step::Cancel { order: 1 },
        ship(1, 0, 3),
    ];
    let done = live(None, &steps).await;
    let expected = [
        "allocate", "allocate", "invoice", "save", "release", "void", "partial", "ship", "invoice", "pay",
        "paid", "bounce", "close", "allocate", "cancel", "ship", "invoice",
    ];
    assert_eq!(done, expected);
}

/// What was invoiced of a line that was taken off the order counts when it comes back, unless the invoice is void.
#[tokio::test]
async fn a_line_that_was_billed_and_went_and_came_back_is_billed_for_what_is_new() {
    for void in [false, true] {
        let mut steps = vec![
            Step::Allocate { order: 0, sku: 0, qty: 1, partial: false },
            Step::Allocate { order: 0, sku: 1, qty: 2, partial: false },
            Step::Invoice { order: 0 },
            Step::Release { order: 0, sku: 1, qty: 2 },
            Step::Save { order: 0, lines: [(0, 2), (0, 2)] },
            Step::Save { order: 0, lines: [(0, 2), (5, 3)] },
            Step::Allocate { order: 0, sku: 1, qty: 3, partial: false },
            Step::Ship { order: 0, sku: 1, qty: 3 },
            Step::Invoice { order: 0 },
        ];
        if void {
            steps.insert(5, Step::Void { invoice: 0 });
        }
        let done = live(None, &steps).await;
        assert_eq!(done.iter().filter(|name| **name == "invoice").count(), 2, "{done:?}");
    }
}
