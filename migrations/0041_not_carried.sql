-- A SKU that a shop does not carry is remembered and asked for again daily, instead of a dead letter for each of its changes.

alter table shopify_inventory_item
  alter column inventory_item_id drop not null,
  -- Where the shop did not carry the SKU: no push before;
  add column ask_after timestamptz,
  -- and the event that is sent again then. Null once it was.
  add column outbox_id bigint,
  add constraint shopify_inventory_item_known_or_asked check (inventory_item_id is not null or ask_after is not null);
create index shopify_inventory_item_to_ask on shopify_inventory_item (ask_after) where outbox_id is not null;

drop policy tenant_read on shopify_inventory_item;
drop policy tenant_write on shopify_inventory_item;
create policy drain on shopify_inventory_item to holdfast_worker using (true);
grant select, insert, update on shopify_inventory_item to holdfast_worker;
