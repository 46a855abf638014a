-- The order-promising core. Every tenant table leads with tenant_id in its keys, so that the schema can be
-- distributed by tenant; foreign keys carry the tenant, so that no row can point into another tenant.
--
-- Deliberately absent: foreign keys from idempotency_key and outbox to rows that every transaction of a tenant
-- shares (tenant, app_user, destination). Each insert would lock that one row FOR KEY SHARE, and side by side
-- they would build multixacts on it; RLS pins the tenant, claim() has seen the user, emit() reads the destination.

create schema holdfast;
grant usage on schema public, holdfast to holdfast_app, holdfast_worker;

-- ── Who ────────────────────────────────────────────────────────────────────────────────────────────────────

create table tenant (
  id uuid primary key default gen_random_uuid(),
  name text not null,
  -- The last number given out for wholesale_order.number, and for events whose aggregate is the tenant.
  order_number bigint not null default 1000,
  event_sequence bigint not null default 0,
  created_at timestamptz not null default now()
);

create table app_user (
  tenant_id uuid not null references tenant,
  id uuid not null default gen_random_uuid(),
  display_name text not null,
  email text not null,
  created_at timestamptz not null default now(),
  primary key (tenant_id, id)
);

create table api_key (
  tenant_id uuid not null,
  id uuid not null default gen_random_uuid(),
  app_user_id uuid not null,
  label text not null,
  -- SHA-256 of the whole key as the partner sends it, `hf_…` included. The key itself is never stored.
  key_hash bytea not null unique check (octet_length(key_hash) = 32),
  scopes text[] not null check (scopes <@ array['orders:write', 'orders:read', 'outbox:admin']),
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  primary key (tenant_id, id),
  foreign key (tenant_id, app_user_id) references app_user
);

create table shopify_shop (
  domain text primary key check (domain = lower(domain)),
  tenant_id uuid not null references tenant,
  created_at timestamptz not null default now()
);

create table threepl_account (
  id text primary key,
  tenant_id uuid not null references tenant,
  -- Standard Webhooks secret, `whsec_` + base64: the sender signs with it, so it must be kept readable.
  secret text not null,
  created_at timestamptz not null default now()
);

create table customer (
  tenant_id uuid not null references tenant,
  id uuid not null default gen_random_uuid(),
  name text not null,
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  credit_limit_minor bigint check (credit_limit_minor >= 0),
  created_at timestamptz not null default now(),
  primary key (tenant_id, id)
);
create index customer_by_name on customer (tenant_id, name, id);

-- ── What ───────────────────────────────────────────────────────────────────────────────────────────────────

create table style (
  tenant_id uuid not null references tenant,
  id uuid not null default gen_random_uuid(),
  name text not null,
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  wholesale_minor bigint not null check (wholesale_minor between 0 and 10000000000),
  msrp_minor bigint not null check (msrp_minor between 0 and 10000000000),
  version bigint not null default 1 check (version > 0),
  event_sequence bigint not null default 0,
  updated_by uuid,
  updated_at timestamptz not null default now(),
  created_at timestamptz not null default now(),
  primary key (tenant_id, id),
  foreign key (tenant_id, updated_by) references app_user
);

create table sku (
  tenant_id uuid not null,
  id uuid not null default gen_random_uuid(),
  code text not null,
  style_id uuid not null,
  created_at timestamptz not null default now(),
  primary key (tenant_id, id),
  unique (tenant_id, code),
  foreign key (tenant_id, style_id) references style
);
create index sku_by_style on sku (tenant_id, style_id);

-- The promise itself. Derived: on_hand and on_order from stock_ledger, allocated from allocation_ledger.
-- ATS = on_hand + on_order - allocated. on_hand may be negative between a shipment and its late receipt.
create table sku_position (
  tenant_id uuid not null,
  sku_id uuid not null,
  on_hand bigint not null default 0,
  on_order bigint not null default 0 check (on_order >= 0),
  allocated bigint not null default 0 check (allocated >= 0),
  -- Counts the events of aggregate `sku`; here and not on sku, since this row is already locked and written.
  event_sequence bigint not null default 0,
  primary key (tenant_id, sku_id),
  foreign key (tenant_id, sku_id) references sku,
  constraint sku_position_no_oversell check (allocated <= on_hand + on_order)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200); -- room for HOT updates

create function holdfast.open_position() returns trigger language plpgsql as $$
begin
  insert into public.sku_position (tenant_id, sku_id) values (new.tenant_id, new.id);
  return null;
end $$;
create trigger sku_has_a_position after insert on sku for each row execute function holdfast.open_position();

-- ── Orders ─────────────────────────────────────────────────────────────────────────────────────────────────

create table wholesale_order (
  tenant_id uuid not null,
  id uuid not null default gen_random_uuid(),
  number text not null,
  customer_id uuid not null,
  status text not null default 'open' check (status in ('open', 'cancelled', 'shipped')),
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  customer_po text check (char_length(customer_po) <= 64),
  ship_window_start date,
  ship_window_end date,
  notes text check (char_length(notes) <= 2000),
  version bigint not null default 1 check (version > 0),
  event_sequence bigint not null default 0,
  created_by uuid not null,
  updated_by uuid not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (tenant_id, id),
  unique (tenant_id, number),
  foreign key (tenant_id, customer_id) references customer,
  foreign key (tenant_id, created_by) references app_user,
  foreign key (tenant_id, updated_by) references app_user,
  constraint wholesale_order_ship_window check (ship_window_start <= ship_window_end)
) with (fillfactor = 80);
create index wholesale_order_newest on wholesale_order (tenant_id, created_at desc, id desc);
create index wholesale_order_by_customer on wholesale_order (tenant_id, customer_id);

-- A line changes only under its order's row lock.
create table order_line (
  tenant_id uuid not null,
  order_id uuid not null,
  sku_id uuid not null,
  line_no int not null default 0,
  qty bigint not null check (qty between 1 and 1000000),
  qty_allocated bigint not null default 0,
  qty_shipped bigint not null default 0 check (qty_shipped >= 0),
  qty_invoiced bigint not null default 0 check (qty_invoiced >= 0),
  unit_price_minor bigint not null check (unit_price_minor between 0 and 10000000000),
  primary key (tenant_id, order_id, sku_id),
  foreign key (tenant_id, order_id) references wholesale_order,
  foreign key (tenant_id, sku_id) references sku,
  constraint order_line_allocated_within_qty check (qty_allocated between 0 and qty),
  constraint order_line_promised_within_qty check (qty_allocated + qty_shipped <= qty)
) with (fillfactor = 80);

create table invoice (
  tenant_id uuid not null,
  id uuid not null default gen_random_uuid(),
  customer_id uuid not null,
  order_id uuid,
  status text not null default 'awaiting_payment' check (status in ('awaiting_payment', 'paid', 'refunded')),
  total_minor bigint not null check (total_minor between 0 and 9007199254740991),
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  paid_at timestamptz,
  event_sequence bigint not null default 0,
  created_at timestamptz not null default now(),
  primary key (tenant_id, id),
  unique (id),
  foreign key (tenant_id, customer_id) references customer,
  foreign key (tenant_id, order_id) references wholesale_order
);
create index invoice_awaiting_payment on invoice (tenant_id, customer_id) include (total_minor)
  where status = 'awaiting_payment';

-- ── Ledgers ────────────────────────────────────────────────────────────────────────────────────────────────

-- qty is signed: allocate +; release, cancel, ship -. created_at is read under the position's lock.
create table allocation_ledger (
  tenant_id uuid not null,
  sku_id uuid not null,
  id bigint generated always as identity,
  order_id uuid not null,
  -- D2C orders are orders too; only a wholesale order can be referenced here.
  order_kind text not null default 'wholesale' check (order_kind in ('wholesale', 'channel')),
  wholesale_order_id uuid generated always as (case when order_kind = 'wholesale' then order_id end) stored,
  qty bigint not null check (qty <> 0),
  entry_type text not null check (entry_type in ('allocate', 'release', 'cancel', 'ship')),
  actor text not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (tenant_id, sku_id, id),
  foreign key (tenant_id, sku_id) references sku_position,
  foreign key (tenant_id, wholesale_order_id) references wholesale_order,
  constraint allocation_ledger_sign check ((entry_type = 'allocate') = (qty > 0))
);
create index allocation_ledger_by_order on allocation_ledger (tenant_id, order_id);

create table stock_ledger (
  tenant_id uuid not null,
  sku_id uuid not null,
  id bigint generated always as identity,
  on_hand_delta bigint not null default 0,
  on_order_delta bigint not null default 0,
  entry_type text not null,
  actor text not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (tenant_id, sku_id, id),
  foreign key (tenant_id, sku_id) references sku_position,
  constraint stock_ledger_moves_something check (on_hand_delta <> 0 or on_order_delta <> 0)
);

create function holdfast.refuse_rewriting() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only: % refused; write a counter-entry instead', tg_table_name, lower(tg_op)
    using errcode = 'restrict_violation';
end $$;
create trigger append_only before update or delete or truncate on allocation_ledger
  for each statement execute function holdfast.refuse_rewriting();
create trigger append_only before update or delete or truncate on stock_ledger
  for each statement execute function holdfast.refuse_rewriting();

-- Lists every position that differs from its ledgers. Always empty.
create view position_audit with (security_invoker = true) as
select p.tenant_id, p.sku_id,
       p.on_hand, coalesce(s.on_hand, 0) as ledger_on_hand,
       p.on_order, coalesce(s.on_order, 0) as ledger_on_order,
       p.allocated, coalesce(a.allocated, 0) as ledger_allocated
from sku_position p
left join (select tenant_id, sku_id, sum(on_hand_delta) as on_hand, sum(on_order_delta) as on_order
           from stock_ledger group by tenant_id, sku_id) s using (tenant_id, sku_id)
left join (select tenant_id, sku_id, sum(qty) as allocated
           from allocation_ledger group by tenant_id, sku_id) a using (tenant_id, sku_id)
where (p.on_hand, p.on_order, p.allocated)
      is distinct from (coalesce(s.on_hand, 0), coalesce(s.on_order, 0), coalesce(a.allocated, 0));

-- The same for an order's lines: what a line holds is what the ledger says was promised to it. Always empty.
create view order_line_audit with (security_invoker = true) as
select tenant_id, order_id, sku_id, coalesce(l.qty_allocated, 0) as qty_allocated,
       coalesce(a.allocated, 0) as ledger_allocated
from order_line l
full join (select tenant_id, order_id, sku_id, sum(qty) as allocated from allocation_ledger
           where order_kind = 'wholesale' group by tenant_id, order_id, sku_id) a
  using (tenant_id, order_id, sku_id)
where coalesce(l.qty_allocated, 0) <> coalesce(a.allocated, 0);

-- ── Idempotency ────────────────────────────────────────────────────────────────────────────────────────────

-- A row here is a finished request: it commits together with its work and its answer.
create table idempotency_key (
  tenant_id uuid not null,
  key text collate "C" not null check (char_length(key) between 1 and 255),
  request_method text not null,
  request_path text not null,
  request_hash bytea not null check (octet_length(request_hash) = 32),
  response_status int not null check (response_status between 200 and 499),
  response_body bytea not null,
  response_content_type text not null,
  response_etag text,
  response_location text,
  created_at timestamptz not null default now(),
  primary key (tenant_id, key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
create index idempotency_key_by_age on idempotency_key (created_at);

create table webhook_inbox (
  provider text not null,
  event_id text not null,
  received_at timestamptz not null default now(),
  primary key (provider, event_id)
);
create index webhook_inbox_by_age on webhook_inbox (received_at);

-- ── Outbox ─────────────────────────────────────────────────────────────────────────────────────────────────

create table destination (
  tenant_id uuid not null references tenant,
  id uuid not null default gen_random_uuid(),
  name text not null,
  kind text not null check (kind in ('webhook', 'shopify_inventory', 'email')),
  url text not null,
  event_types text[] not null check (cardinality(event_types) > 0),
  customer_id uuid,
  ordered boolean not null default false,
  max_attempts int not null default 12 check (max_attempts between 1 and 100),
  state text not null default 'active' check (state in ('active', 'paused', 'disabled')),
  created_at timestamptz not null default now(),
  primary key (tenant_id, id),
  unique (id),
  foreign key (tenant_id, customer_id) references customer
);

create table destination_secret (
  tenant_id uuid not null,
  destination_id uuid not null,
  id uuid not null default gen_random_uuid(),
  secret text not null,
  created_at timestamptz not null default now(),
  -- Set when a newer secret replaces this one; until then both sign.
  retires_at timestamptz,
  primary key (tenant_id, destination_id, id),
  foreign key (tenant_id, destination_id) references destination
);

-- One row = one event owed to one destination, or to nobody: then already processed.
create table outbox (
  id bigint generated always as identity primary key,
  tenant_id uuid not null,
  destination_id uuid,
  event_id uuid not null,
  aggregate_type text not null,
  aggregate_id uuid not null,
  sequence bigint not null,
  event_type text not null,
  payload text not null,
  created_at timestamptz not null default clock_timestamp(),
  -- Counted when claimed: an attempt that kills the relay is an attempt.
  attempts int not null default 0,
  next_attempt_at timestamptz not null default clock_timestamp(),
  lease_token uuid,
  leased_until timestamptz,
  processed_at timestamptz,
  dead_lettered_at timestamptz,
  discarded_at timestamptz,
  last_error text check (char_length(last_error) <= 2000),
  constraint outbox_owed_or_processed check (destination_id is not null or processed_at is not null),
  constraint outbox_one_end check (num_nonnulls(processed_at, dead_lettered_at, discarded_at) <= 1)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0.05);
-- What is owed, oldest due first within each destination. Global: the relay drains across tenants.
create index outbox_pending on outbox (destination_id, next_attempt_at, id)
  where processed_at is null and dead_lettered_at is null and discarded_at is null;
create index outbox_processed on outbox (processed_at) where processed_at is not null;

-- ── Row-level security ─────────────────────────────────────────────────────────────────────────────────────

do $$
declare
  v_table text;
begin
  foreach v_table in array array['app_user', 'api_key', 'shopify_shop', 'threepl_account', 'customer', 'style', 'sku',
      'sku_position', 'wholesale_order', 'order_line', 'invoice', 'allocation_ledger', 'stock_ledger',
      'idempotency_key', 'destination', 'destination_secret', 'outbox'] loop
    execute format('alter table public.%I enable row level security', v_table);
    -- The sub-select is evaluated once per statement. An unset tenant is null, and null equals nothing.
    execute format($policy$create policy tenant_only on public.%I to holdfast_app
      using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid))$policy$, v_table);
  end loop;
end $$;
alter table tenant enable row level security;
create policy tenant_only on tenant to holdfast_app
  using (id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));
alter table webhook_inbox enable row level security;
create policy any_sender on webhook_inbox to holdfast_app using (true); -- it knows senders, not tenants

grant select on tenant, app_user, api_key, customer, style, sku, sku_position, wholesale_order, order_line,
  invoice, allocation_ledger, stock_ledger, idempotency_key, destination, outbox, position_audit,
  order_line_audit to holdfast_app;
grant update (allocated, event_sequence) on sku_position to holdfast_app;
grant update (event_sequence) on wholesale_order to holdfast_app;
grant update (qty_allocated) on order_line to holdfast_app;
-- Locking a customer's row for its credit limit needs the right to update some column of it; not the limit.
grant update (created_at) on customer to holdfast_app;
grant insert on allocation_ledger, idempotency_key, outbox to holdfast_app;

-- The worker (relay, reaper) crosses tenants on just the tables that it drains.
create policy drain on outbox to holdfast_worker using (true);
create policy drain on destination to holdfast_worker using (true);
create policy drain on destination_secret to holdfast_worker using (true);
create policy drain on idempotency_key to holdfast_worker using (true);
create policy drain on webhook_inbox to holdfast_worker using (true);
grant select, update, delete on outbox to holdfast_worker;
grant select, update (state) on destination to holdfast_worker;
grant select on destination_secret to holdfast_worker;
grant select, delete on idempotency_key, webhook_inbox to holdfast_worker;
-- ── Shapes that the replaceable functions pass to each other ───────────────────────────────────────────────

-- What an operation decided. Success: content is the whole document. Refusal: error names it, content holds
-- its further members as a JSON fragment (`"lines":[…]`), or null.
create type holdfast.outcome as (status int, error text, detail text, content text, etag text, location text);

-- decision: run (go on), answer (recorded just now), replay, reused, in_use, unknown_user.
create type holdfast.answer as (decision text, status int, body bytea, content_type text, etag text, location text);

-- One event before fan-out; data is rendered JSON; customer_id only where a bound destination may ask for it.
create type holdfast.event as (type text, aggregate_type text, aggregate_id uuid, sequence bigint,
  customer_id uuid, data text);
