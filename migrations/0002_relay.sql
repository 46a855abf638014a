-- What the relay and the reaper need beside the tables.

-- Rows that a relay holds, by the end of their lease: those past it were lost with their relay. Holds no more than
-- is in flight.
create index outbox_leased on outbox (leased_until)
  where lease_token is not null and processed_at is null and dead_lettered_at is null and discarded_at is null;

-- A destination that answers 410 is disabled, which is itself an event of its tenant.
create policy drain on tenant to holdfast_worker using (true);
grant select (id, event_sequence), update (event_sequence) on tenant to holdfast_worker;
grant insert on outbox to holdfast_worker;

-- SKIP LOCKED needs the right to update some column; two reapers then pass each other instead of waiting.
grant update (created_at) on idempotency_key to holdfast_worker;
grant update (received_at) on webhook_inbox to holdfast_worker;
