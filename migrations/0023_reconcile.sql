-- The nightly reconciliation: where each 3PL account reports its stock, the runs, what they found, and what is needed to say
-- what the books held at the moment of a count.

-- ── Where counts come from ─────────────────────────────────────────────────────────────────────────────────────

-- Apart from threepl_account: the worker reads this table across tenants, and that one holds the webhooks' secrets.
create table threepl_inventory (
  tenant_id uuid not null references tenant,
  account_id text not null references threepl_account,
  -- The report is at <base_url>/inventory, asked for with this bearer token.
  base_url text not null,
  token text not null,
  created_at timestamptz not null default now(),
  primary key (tenant_id, account_id),
  unique (account_id)
);

-- ── Runs ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- walking: pages are fetched into snapshots; measuring: counts are compared with the books; held: a person decides; booking:
-- positions follow the counts. The other states are ends; superseded: the next night came first.
create table reconcile_run (
  tenant_id uuid not null references tenant,
  id uuid not null default gen_random_uuid(),
  snapshot_date date not null,
  state text not null default 'walking'
    check (state in ('walking', 'measuring', 'held', 'booking', 'done', 'dropped', 'superseded')),
  -- Who works at it, or did: refused once leased_until is past. step counts the pages that committed, of all kinds.
  lease_token uuid,
  leased_until timestamptz,
  step bigint not null default 0,
  -- The last failure of a walk that will go on.
  error text check (char_length(error) <= 2000),
  -- Found by the walk: pages and lines of reports; lines that name no SKU of ours, and that cannot be read.
  pages bigint not null default 0,
  lines bigint not null default 0,
  unknown bigint not null default 0,
  invalid bigint not null default 0,
  -- Found by the comparison: SKUs listed, counts beside another of the same SKU and account, SKUs with stock that nobody lists,
  -- SKUs that differ and by how many units, SKUs that differ by more than may be booked unseen, units on the books.
  skus bigint not null default 0,
  duplicates bigint not null default 0,
  missing bigint not null default 0,
  variances bigint not null default 0,
  variance_up bigint not null default 0,
  variance_down bigint not null default 0,
  beyond_limit bigint not null default 0,
  stock_units bigint not null default 0,
  -- Booked: SKUs, units; units that could not be taken, since they are promised.
  booked bigint not null default 0,
  units_up bigint not null default 0,
  units_down bigint not null default 0,
  units_short bigint not null default 0,
  held_reason text,
  decided_by text,
  decided_at timestamptz,
  started_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  finished_at timestamptz,
  primary key (tenant_id, id),
  constraint reconcile_run_finished check ((finished_at is not null) = (state in ('done', 'dropped', 'superseded')))
);
create unique index reconcile_run_one_open on reconcile_run (tenant_id) where finished_at is null;
create index reconcile_run_to_do on reconcile_run (started_at, id) where state in ('walking', 'measuring', 'booking');
create index reconcile_run_newest on reconcile_run (tenant_id, started_at, id);

-- What a run found, but for what agrees.
create table reconcile_finding (
  tenant_id uuid not null,
  run_id uuid not null,
  id uuid not null default gen_random_uuid(),
  -- variance: counted and booked differ, or may (see recent in reconcile_measure); missing: stock that no account lists.
  kind text not null check (kind in ('variance', 'missing', 'unknown', 'invalid')),
  code text not null,
  -- unknown and invalid: the account that said so, and of invalid why it cannot be used.
  account_id text,
  reason text,
  -- variance and missing.
  sku_id uuid,
  counted bigint,
  counted_at timestamptz,
  expected bigint,
  -- What was booked of the variance: what the position moved by; units that are missing though promised, or, below 0, no more.
  adjusted bigint not null default 0,
  short bigint not null default 0,
  booked_at timestamptz,
  primary key (tenant_id, id),
  foreign key (tenant_id, run_id) references reconcile_run
);
create unique index reconcile_finding_by_sku on reconcile_finding (tenant_id, run_id, sku_id) where sku_id is not null;
create unique index reconcile_finding_by_line on reconcile_finding (tenant_id, run_id, account_id, code, kind)
  where account_id is not null;
create index reconcile_finding_by_code on reconcile_finding (tenant_id, run_id, code, id);

-- ── Snapshots ──────────────────────────────────────────────────────────────────────────────────────────────────

-- A row per account. Those of a day that another run of that day wrote do not count. The day stands before the SKU, so that a
-- night's rows stand together.
alter table inventory_snapshot
  add column account_id text not null default '',
  add column run_id uuid,
  add column as_of timestamptz not null default now();
alter table inventory_snapshot drop constraint inventory_snapshot_pkey;
alter table inventory_snapshot add primary key (tenant_id, snapshot_date, sku_id, account_id);

-- ── What the books held at a moment ────────────────────────────────────────────────────────────────────────────

create index stock_ledger_by_time on stock_ledger (tenant_id, sku_id, created_at);

-- on_hand still carries units that have left and are promised (shortfall.owed_on_hand). How many there were at a moment follows
-- from these lines, as on_hand does from stock_ledger. Kept by triggers, under the position's lock, which whoever owes holds.
create table owed_ledger (
  tenant_id uuid not null,
  sku_id uuid not null,
  created_at timestamptz not null default clock_timestamp(),
  id bigint generated always as identity,
  on_hand_delta bigint not null check (on_hand_delta <> 0),
  primary key (tenant_id, sku_id, created_at, id)
);
create trigger append_only before update or delete or truncate on owed_ledger
  for each statement execute function holdfast.refuse_rewriting();
create function holdfast.note_owed() returns trigger language plpgsql as $$
begin
  insert into public.owed_ledger (tenant_id, sku_id, on_hand_delta)
  values (new.tenant_id, new.sku_id, new.owed_on_hand - case tg_op when 'UPDATE' then old.owed_on_hand else 0 end);
  return null;
end $$;
create trigger owed_of_new after insert on shortfall for each row when (new.owed_on_hand > 0)
  execute function holdfast.note_owed();
create trigger owed_changes after update of owed_on_hand on shortfall for each row
  when (new.owed_on_hand <> old.owed_on_hand) execute function holdfast.note_owed();

-- ── Rights ─────────────────────────────────────────────────────────────────────────────────────────────────────

do $$
declare
  v_table text;
begin
  foreach v_table in array array['threepl_inventory', 'reconcile_run', 'reconcile_finding', 'owed_ledger'] loop
    execute format('alter table public.%I enable row level security', v_table);
    execute format($policy$create policy tenant_only on public.%I to holdfast_app
      using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid))$policy$, v_table);
  end loop;
  -- What a page reads and books it reads and books as one tenant at a time.
  foreach v_table in array array['sku_position', 'stock_ledger', 'allocation_ledger', 'owed_ledger', 'shortfall',
      'inbox_exception', 'channel_hold'] loop
    execute format($policy$create policy tenant_work on public.%I to holdfast_worker
      using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid))$policy$, v_table);
  end loop;
end $$;
create policy drain on threepl_inventory to holdfast_worker using (true);
create policy drain on reconcile_run to holdfast_worker using (true);
create policy drain on reconcile_finding to holdfast_worker using (true);
grant select on threepl_inventory to holdfast_worker;
grant select, insert, update, delete on reconcile_run, reconcile_finding to holdfast_worker;
grant update (on_hand, on_order, allocated, event_sequence) on sku_position to holdfast_worker;
grant select, insert on stock_ledger, allocation_ledger, owed_ledger to holdfast_worker;
grant select, insert, update on shortfall, inbox_exception to holdfast_worker;
grant select, update on channel_hold to holdfast_worker;
grant insert on owed_ledger to holdfast_app;
grant select on owed_ledger, reconcile_run, reconcile_finding, sync_checkpoint to holdfast_app;
grant update (state, decided_by, decided_at, updated_at, finished_at) on reconcile_run to holdfast_app;
create policy tenant_only on inventory_snapshot to holdfast_app
  using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));
create policy tenant_only on sync_checkpoint to holdfast_app
  using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));
