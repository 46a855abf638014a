-- Destinations of every kind: what a person may set on them, how they are doing, and who put what right.

-- Rows of such a destination depend on others of their aggregate: they go out in order, or together.
alter table destination
  add column max_per_second int check (max_per_second between 1 and 1000),
  -- shopify_inventory: the location whose stock is set; null until it is known.
  add column location_id text check (char_length(location_id) between 1 and 255),
  add column keyed boolean generated always as (ordered or kind = 'shopify_inventory') stored,
  add constraint destination_pushes_have_no_order check (not (ordered and kind = 'shopify_inventory'));

-- What the relay has seen of a destination. Beside it and not in it: every event reads destination, every failure
-- writes here. No row: nothing to tell.
create table destination_health (
  tenant_id uuid not null,
  destination_id uuid primary key,
  -- In a row, of any event; a success begins anew.
  failures int not null default 0,
  -- Set while its breaker is open: until then nothing is claimed, then one row, the probe.
  open_until timestamptz,
  -- Whether the probe is on its way.
  probing boolean not null default false,
  -- How often in a row the breaker was opened: each pause is longer than the one before.
  opened int not null default 0,
  -- When what was claimed so far is paid for: at max_per_second, or as the destination asked (throttling).
  paced_until timestamptz,
  last_error text,
  last_failure_at timestamptz,
  last_success_at timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 200);

-- Which inventory item of the shop a SKU is, as found by its code or set by a person.
create table shopify_inventory_item (
  tenant_id uuid not null,
  destination_id uuid not null,
  sku_id uuid not null,
  inventory_item_id text not null check (char_length(inventory_item_id) between 1 and 255),
  primary key (tenant_id, destination_id, sku_id),
  foreign key (tenant_id, destination_id) references destination,
  foreign key (tenant_id, sku_id) references sku
);

-- Who put what right, and when. Append-only.
create table outbox_audit (
  tenant_id uuid not null,
  id bigint generated always as identity,
  at timestamptz not null default clock_timestamp(),
  actor text not null,
  app_user_id uuid not null,
  action text not null,
  outbox_id bigint,
  destination_id uuid,
  details jsonb not null default '{}',
  primary key (tenant_id, id)
);
create index outbox_audit_of_row on outbox_audit (tenant_id, outbox_id) where outbox_id is not null;
create trigger append_only before update or delete or truncate on outbox_audit
  for each statement execute function holdfast.refuse_rewriting();

alter table outbox
  add column keyed boolean not null default false,
  -- Times that a person sent it back to pending.
  add column requeues int not null default 0,
  add column discard_reason text check (char_length(discard_reason) <= 2000);
-- An aggregate's queue at one destination, its head first.
create index outbox_keyed on outbox (destination_id, aggregate_id, sequence)
  where keyed and processed_at is null and dead_lettered_at is null and discarded_at is null;
-- A person's look at a tenant's outbox, newest first, and by time.
create index outbox_newest on outbox (tenant_id, created_at, id);
create index outbox_dead on outbox (tenant_id, created_at, id) where dead_lettered_at is not null;

do $$
declare
  v_table text;
begin
  foreach v_table in array array['destination_health', 'shopify_inventory_item', 'outbox_audit'] loop
    execute format('alter table public.%I enable row level security', v_table);
    execute format($policy$create policy tenant_only on public.%I to holdfast_app
      using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid))$policy$, v_table);
  end loop;
  -- What the relay reads in order to push or to write a mail it reads as one tenant at a time.
  foreach v_table in array array['sku', 'sku_position', 'style', 'wholesale_order', 'order_line', 'customer', 'app_user',
      'shopify_inventory_item'] loop
    execute format('drop policy if exists tenant_read on public.%I', v_table);
    execute format($policy$create policy tenant_read on public.%I for select to holdfast_worker
      using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid))$policy$, v_table);
    execute format('grant select on public.%I to holdfast_worker', v_table);
  end loop;
end $$;
create policy drain on destination_health to holdfast_worker using (true);
create policy tenant_write on shopify_inventory_item for insert to holdfast_worker
  with check (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));

grant select, insert, update on destination_health to holdfast_app, holdfast_worker;
grant select, insert, update, delete on shopify_inventory_item to holdfast_app;
grant insert on shopify_inventory_item to holdfast_worker;
grant select, insert on outbox_audit to holdfast_app;
grant insert on destination to holdfast_app;
grant update (name, url, event_types, customer_id, ordered, max_attempts, max_per_second, location_id, state)
  on destination to holdfast_app;
grant select, insert, update (retires_at), delete on destination_secret to holdfast_app;
grant update (attempts, next_attempt_at, lease_token, leased_until, processed_at, dead_lettered_at, discarded_at, keyed,
  requeues, discard_reason) on outbox to holdfast_app;
grant update (event_sequence) on tenant to holdfast_app;
