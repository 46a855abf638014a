-- What people watch: attempts by time, and what waits for a person.

-- Attempts of a destination by minute (the last 60) and by hour (the last 24): a ring of slots that are written anew, so it
-- never grows. `at` is the beginning of the span that the slot holds now.
create table delivery_tally (
  tenant_id uuid not null,
  destination_id uuid not null,
  span text not null check (span in ('minute', 'hour')),
  slot int not null check (slot between 0 and 59),
  at timestamptz not null,
  delivered bigint not null default 0,
  failed bigint not null default 0,
  primary key (destination_id, span, slot)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
alter table delivery_tally enable row level security;
create policy tenant_only on delivery_tally to holdfast_app
  using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));
create policy drain on delivery_tally to holdfast_worker using (true);
grant select on delivery_tally to holdfast_app;
grant select, insert, update on delivery_tally to holdfast_worker;

-- Only what waits, so that counting it does not pass what has ended.
create index reconcile_run_held on reconcile_run (tenant_id) where state = 'held';
