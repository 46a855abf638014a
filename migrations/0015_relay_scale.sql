-- What lets relay and operator work in bounded steps, however much waits.

-- A row that waits in an ordered queue (next_attempt_at = infinity) waits for the one before it to be settled. Whether that one's
-- settlement will see this row is not known when it is written beside it; the relay checks each such row once. The index holds
-- only what is not checked yet, so that nothing has to go round all queues. (isfinite: no other index can be used for it.)
alter table outbox add column wait_checked boolean not null default false;
create index outbox_unchecked on outbox (destination_id, aggregate_id, sequence)
  where not isfinite(next_attempt_at) and not wait_checked
    and processed_at is null and dead_lettered_at is null and discarded_at is null;

-- A destination's dead letters: counted up to a bound, and found for its end.
create index outbox_dead_of on outbox (destination_id, created_at, id) where dead_lettered_at is not null;

-- Destinations whose `ordered` was switched and whose pending rows do not all stand as it wants yet. Nothing is claimed there
-- until the relay has put the last row in its place, in steps.
create table rearrangement (
  tenant_id uuid not null,
  destination_id uuid primary key,
  started_at timestamptz not null default clock_timestamp(),
  -- Transactions from before this one may have read the old `ordered`; null until the switch has committed.
  horizon xid8
);
alter table rearrangement enable row level security;
create policy tenant_only on rearrangement to holdfast_app
  using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));
create policy drain on rearrangement to holdfast_worker using (true);
grant select, insert, update, delete on rearrangement to holdfast_app;
grant select, update, delete on rearrangement to holdfast_worker;

grant update (wait_checked) on outbox to holdfast_app;
