-- Classes of the two-key advisory locks, held to the end of the transaction. One-key locks: a request and its key
-- (shared/src/idempotency/once.rs), a payment intent (6_webhooks/inbox.sql), a SKU that is pushed (4_delivery/claim.sql).

-- The queue before a SKU's position: buyers in order of arrival. It guards nothing; the position's row lock does.
create or replace function holdfast.lock_class_sku() returns int language sql immutable parallel safe return 1;

-- A customer's promises: shared by requests that see no credit limit, exclusive for those that see one.
create or replace function holdfast.lock_class_customer() returns int language sql immutable parallel safe return 2;

-- A sender's deliveries (shared), and, for a moment, whoever has just created what one of them may find missing (exclusive): see
-- holdfast.await_deliveries.
create or replace function holdfast.lock_class_sender() returns int language sql immutable parallel safe return 3;
