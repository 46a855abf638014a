-- The outbox as a state machine: one row is one event for one destination; or for none (no subscriber), delivered from the start.
--
--   state            transition                                   next state
--   (event)          emit                                         free; waiting, if behind another row of an ordered queue
--   waiting          wake_next: the row before it has ended       free
--   free and due     relay_claim                                  leased
--   leased           relay_settle: delivered                      delivered
--                    failed; gone                                 free, due after its backoff; due now
--                    throttled; failed while the breaker is open  free, in its old place; due now; the attempt is given back
--                    rejected; failed, with no attempt left       dead
--   leased           the lease runs out                           lost
--   lost             relay_claim_lost                             leased
--                    relay_sweep_lost, with no attempt left       dead
--   delivered        relay_ask_again, a day after a shop did not    free
--                    carry the SKU
--   dead, delivered  requeue_one, requeue_many                    free or waiting, with all its attempts
--   dead, pending    discard_one                                  discarded
--
-- Pending: free, waiting, leased or lost. Waiting: behind the head of its queue, next_attempt_at = infinity. Leased: leased_until
-- lies ahead, by the database's clock; lost: it has passed.

-- Inlined into each statement, so that it matches the partial indexes outbox_pending, outbox_keyed and outbox_leased.
create or replace function holdfast.is_pending(p_row public.outbox) returns boolean
language sql immutable parallel safe
return p_row.processed_at is null and p_row.dead_lettered_at is null and p_row.discarded_at is null;

create or replace function holdfast.outbox_state(p_row public.outbox) returns text
language sql immutable parallel safe
return case when p_row.processed_at is not null then 'delivered'
            when p_row.dead_lettered_at is not null then 'dead'
            when p_row.discarded_at is not null then 'discarded'
            else 'pending' end;

-- The longest backoff, in units of p_unit_secs.
create or replace function holdfast.retry_max() returns float8 language sql immutable parallel safe return 3600;

-- Seconds until the next attempt: min(2^attempts * jitter, 3600) units, jitter at random between 1.0 and 1.5; or what the
-- destination asked for (p_retry_after_secs, at most an hour, or null) if that is longer.
create or replace function holdfast.retry_delay_secs(p_attempts int, p_unit_secs float8, p_jitter float8,
  p_retry_after_secs float8) returns float8
language sql immutable parallel safe
-- 2^20 is far beyond the limit, and small enough not to overflow.
return greatest(p_unit_secs * least(power(2, greatest(0, least(p_attempts, 20))) * p_jitter, holdfast.retry_max()),
                coalesce(p_retry_after_secs, 0));
