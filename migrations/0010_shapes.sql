-- Shapes that the replaceable functions pass to each other, so that none takes a dozen parallel arrays.

-- What is to happen to one SKU's position; entry_type names it in stock_ledger. See holdfast.shift.
create type holdfast.position_change as (sku_id uuid, on_hand bigint, on_order bigint, allocated bigint, entry_type text);

-- How one attempt to deliver ended; see holdfast.relay_settle.
create type holdfast.settled_attempt as (id bigint, token uuid, outcome text, error text, jitter float8,
  retry_after_secs float8, pause_secs float8);
