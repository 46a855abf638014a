-- The relay under bad neighbours, and an operator who can end things.

alter table destination_health
  -- Nothing is sent before, since the destination asked to slow down; how often in a row it did, and since when nothing else.
  add column throttled_until timestamptz,
  add column throttles int not null default 0,
  add column throttled_since timestamptz,
  -- Since when every attempt, of whichever event, found no connection, no answer in time, or a 5xx.
  add column unreachable_since timestamptz;

-- The last attempts, oldest first: [{"at","status","ms","said"}].
alter table outbox add column attempt_log jsonb;

-- The result of one attempt, and what attempts of one destination add up to.
create type holdfast.attempt_result as (id bigint, token uuid, outcome text, error text, jitter float8, retry_after_secs float8,
  pause_secs float8, unreachable boolean, status int, ms int);
create type holdfast.attempt_totals as (delivered int, failed int, first_failed int, unreachable int, answered int,
  throttled boolean, pause_secs float8, error text);

-- The relay that began last, of those that watch: the one before it goes on until it sees another one here.
create table relay_watch (
  only_row boolean primary key default true check (only_row),
  relay uuid not null,
  began_at timestamptz not null
);
alter table relay_watch enable row level security;
create policy drain on relay_watch to holdfast_worker using (true);
grant select, insert, update on relay_watch to holdfast_worker;

-- Destinations that a person deleted. What was pending there is discarded in steps; then the row stays as a record.
create table destination_end (
  tenant_id uuid not null,
  destination_id uuid primary key,
  reason text not null check (char_length(reason) <= 2000),
  ended_at timestamptz not null default clock_timestamp(),
  -- Transactions from before this one may still write events for it; null until the deletion has committed.
  horizon xid8,
  done_at timestamptz
);
create index destination_end_under_way on destination_end (ended_at) where done_at is null;
alter table destination_end enable row level security;
create policy tenant_only on destination_end to holdfast_app
  using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));
create policy drain on destination_end to holdfast_worker using (true);
grant select, insert on destination_end to holdfast_app;
grant select, update on destination_end to holdfast_worker;
grant delete on destination, destination_health to holdfast_app;

-- The destination whose events a key with the scope events:read is about.
alter table api_key
  add column destination_id uuid,
  add constraint api_key_events_of_one_destination check (not 'events:read' = any (scopes) or destination_id is not null);
