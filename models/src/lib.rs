//! Small models of the two mechanisms in which the order of steps decides: the claim of an idempotency key
//! (`migrations/functions/3_idempotency`) and the outbox with the relay's lease (`4_delivery`).
//!
//! A checker walks through every order in which the steps of all parties can follow one another, with crashes at every point.
//! A model shows what an interleaving could break and says nothing of the code; that the code takes these steps is
//! what the tests beside it show. Each model can be told to leave out one step that the code calls essential: a test
//! holds that the checker then finds what goes wrong.

pub mod claim;
pub mod outbox;
