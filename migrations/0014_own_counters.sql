-- Events about an exception or a destination count on the row of that thing: the tenant's row would be a queue of all that
-- its senders and destinations tell of, held while positions are.
alter table inbox_exception add column event_sequence bigint not null default 0;
-- Beside the destination and not in it, as the rest of what changes often: every event reads destination.
alter table destination_health add column event_sequence bigint not null default 0;

-- An order gets its number when all else of it is written.
grant update (number) on wholesale_order to holdfast_app;

-- While an old snapshot is held (a dump, a forgotten BEGIN), each look-up of a hot position walks over all of its versions since. A
-- ledger line looked up the position for its foreign key; the SKU's own row, which nothing updates, says the same. Every line has
-- had a position, and so a SKU.
alter table allocation_ledger drop constraint allocation_ledger_tenant_id_sku_id_fkey,
  add constraint allocation_ledger_tenant_id_sku_id_fkey foreign key (tenant_id, sku_id) references sku not valid;
