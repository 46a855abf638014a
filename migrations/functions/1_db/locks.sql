-- The classes of the two-key advisory locks, named here so that no two uses share one. All of them last for a transaction.
-- Locks with one key of 64 bits: a request and its key (made in Rust, shared/src/idempotency/once.rs), a payment intent
-- (6_webhooks/inbox.sql), a SKU that is pushed to a shop (4_delivery/claim.sql).

-- The queue before a SKU's position: a fair line of buyers. Guards nothing; the row does.
create or replace function holdfast.lock_class_sku() returns int language sql immutable parallel safe return 1;

-- A customer's promises: shared by those that run without a credit limit, taken alone by the first that finds one.
create or replace function holdfast.lock_class_customer() returns int language sql immutable parallel safe return 2;
