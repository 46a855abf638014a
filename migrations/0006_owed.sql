-- Units that the books still carry though they are gone: booked as soon as ATS covers them, whatever raises it.

create index shortfall_owed on shortfall (tenant_id, sku_id) where owed_on_hand + owed_on_order > 0;

alter table channel_order_line
  -- What the line's facts came to when it was last settled: what is beyond is newly needed.
  add column qty_needed bigint not null default 0 check (qty_needed >= 0),
  -- Of the missing units, those that were shipped all the same.
  add column qty_owed bigint not null default 0 check (qty_owed >= 0);
update channel_order_line set qty_needed = qty_allocated + qty_gone + qty_short;
