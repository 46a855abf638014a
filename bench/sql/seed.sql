-- One tenant, 1,000 SKUs with more stock than any run can allocate, 1,000 open orders. Order n wants 1,000,000 units of
-- SKU n and of SKU 0, the hot one. One destination subscribes to everything, so each allocation writes two outbox rows.
-- The last twelve digits of an id are 100000000000 + n, so a load generator needs only a random number.
insert into tenant (id, name) values ('11111111-1111-4111-8111-111111111111', 'Bench');
insert into app_user (tenant_id, id, display_name, email)
values ('11111111-1111-4111-8111-111111111111', '22222222-2222-4222-8222-222222222222', 'Bench', 'bench@example.com');
insert into customer (tenant_id, id, name, currency)
values ('11111111-1111-4111-8111-111111111111', '33333333-3333-4333-8333-333333333333', 'Bench', 'USD');
insert into style (tenant_id, id, name, currency, wholesale_minor, msrp_minor)
values ('11111111-1111-4111-8111-111111111111', '44444444-4444-4444-8444-444444444444', 'Bench', 'USD', 1000, 2000);

insert into sku (tenant_id, id, code, style_id)
select '11111111-1111-4111-8111-111111111111', ('55555555-5555-4555-8555-' || (100000000000 + n))::uuid, 'SKU-' || n,
       '44444444-4444-4444-8444-444444444444'
from generate_series(0, 999) n;
insert into stock_ledger (tenant_id, sku_id, on_hand_delta, entry_type, actor)
select tenant_id, id, 1000000000000, 'opening', 'bench' from sku;
update sku_position set on_hand = 1000000000000;

insert into wholesale_order (tenant_id, id, number, customer_id, currency, created_by, updated_by)
select '11111111-1111-4111-8111-111111111111', ('66666666-6666-4666-8666-' || (100000000000 + n))::uuid, 'SO-' || n,
       '33333333-3333-4333-8333-333333333333', 'USD', '22222222-2222-4222-8222-222222222222',
       '22222222-2222-4222-8222-222222222222'
from generate_series(0, 999) n;
insert into order_line (tenant_id, order_id, sku_id, qty, unit_price_minor)
select o.tenant_id, o.id, s.id, 1000000, 1000
from wholesale_order o
join sku s on s.tenant_id = o.tenant_id
  and (right(s.id::text, 12) = right(o.id::text, 12) or right(s.id::text, 12) = '100000000000');

insert into destination (tenant_id, name, kind, url, event_types)
values ('11111111-1111-4111-8111-111111111111', 'Bench', 'webhook', 'https://example.com/', '{*}');

-- Keys of the textbook implementation: committed as in progress before the work, and as done after it. Otherwise like
-- idempotency_key.
create schema bench;
grant usage on schema bench to holdfast_app;
create table bench.textbook_key (
  tenant_id uuid not null,
  key text collate "C" not null check (char_length(key) between 1 and 255),
  state text not null check (state in ('in_progress', 'done')),
  request_method text not null,
  request_path text not null,
  request_hash bytea not null check (octet_length(request_hash) = 32),
  response_status int,
  response_body bytea,
  response_content_type text,
  locked_at timestamptz not null default now(),
  created_at timestamptz not null default now(),
  primary key (tenant_id, key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
create index textbook_key_by_age on bench.textbook_key (created_at);
alter table bench.textbook_key enable row level security;
create policy tenant_only on bench.textbook_key to holdfast_app
  using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));
grant select, insert, update on bench.textbook_key to holdfast_app;

-- The first ten orders want every SKU, for requests of many lines. Of everything there is something to give back.
insert into order_line (tenant_id, order_id, sku_id, line_no, qty, unit_price_minor)
select o.tenant_id, o.id, s.id, right(s.id::text, 12)::bigint - 100000000000, 1000000, 1000
from wholesale_order o join sku s using (tenant_id)
where right(o.id::text, 12) < '100000000010'
on conflict do nothing;
update order_line set qty_allocated = 100000;
insert into allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor)
select tenant_id, order_id, sku_id, qty_allocated, 'allocate', 'bench' from order_line;
update sku_position p set allocated = (
  select sum(l.qty) from allocation_ledger l where l.tenant_id = p.tenant_id and l.sku_id = p.sku_id);
-- A warehouse that announces goods.
insert into threepl_account (id, tenant_id, secret) values ('bench', '11111111-1111-4111-8111-111111111111', 'whsec_');
