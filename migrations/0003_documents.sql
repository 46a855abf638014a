-- Orders, styles and invoices as documents that people edit.

-- What an invoice is made of. An invoice without an order has no lines.
create table invoice_line (
  tenant_id uuid not null,
  invoice_id uuid not null,
  sku_id uuid not null,
  qty bigint not null check (qty > 0),
  unit_price_minor bigint not null check (unit_price_minor between 0 and 10000000000),
  primary key (tenant_id, invoice_id, sku_id),
  foreign key (tenant_id, invoice_id) references invoice,
  foreign key (tenant_id, sku_id) references sku
);
alter table invoice_line enable row level security;
create policy tenant_only on invoice_line to holdfast_app
  using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));
create index invoice_by_order on invoice (tenant_id, order_id) where order_id is not null;

grant select, insert on invoice_line to holdfast_app;
grant insert on invoice, wholesale_order, order_line to holdfast_app;
grant update (order_number) on tenant to holdfast_app;
grant update (status, customer_po, ship_window_start, ship_window_end, notes, version, updated_by, updated_at)
  on wholesale_order to holdfast_app;
grant update (line_no, qty, unit_price_minor, qty_invoiced), delete on order_line to holdfast_app;
grant update (wholesale_minor, msrp_minor, version, event_sequence, updated_by, updated_at) on style to holdfast_app;
