-- The outbox as a state machine: one row is one event that one destination is to get.
--
--            emit                claim                  settle: delivered
--   (event) ------> free, due ----------> leased ------------------------------> delivered
--                     ^  ^                | |  |                                     |
--                     |  |  settle: failed| |  | settle: rejected, or failed         |
--                     |  +----------------+ |  | with no attempt left                |
--                     |   due after backoff |  +----------> dead letter <------------|---- sweep_lost: no attempt left
--                     |                     |                   |                    |
--                     |        lease ran out|                   | requeue            | requeue
--                     |  claim_lost         v                   v                    v
--                     |  <------------ lost (leased, past its lease)     back to free, with all its attempts
--                     |
--                  waiting (next_attempt_at = infinity): not the head of its aggregate's queue at an ordered destination;
--                  wake_next makes it due when the one before has ended.
--
--   free, waiting, leased or dead --- discard ---> discarded
--   an event without a subscriber: one row without a destination, already processed
--
-- Pending: no end yet, so free, waiting, leased or lost. A pending row is free without a lease_token, leased while
-- leased_until lies ahead, and lost after that: its relay died or froze, perhaps because of it. The clock is always the
-- database's.

-- Whether a row has no end yet. Inlined into each statement, where it is the predicate of the indexes outbox_pending,
-- outbox_keyed and outbox_leased: the plans are those of the three conditions written out.
create or replace function holdfast.is_pending(p_row public.outbox) returns boolean
language sql immutable parallel safe
return p_row.processed_at is null and p_row.dead_lettered_at is null and p_row.discarded_at is null;

-- A row's state in a word, as people see it.
create or replace function holdfast.outbox_state(p_row public.outbox) returns text
language sql immutable parallel safe
return case when p_row.processed_at is not null then 'delivered'
            when p_row.dead_lettered_at is not null then 'dead'
            when p_row.discarded_at is not null then 'discarded'
            else 'pending' end;

-- The longest that a row is put off, in units of the backoff (seconds).
create or replace function holdfast.retry_max() returns float8 language sql immutable parallel safe return 3600;

-- The backoff: in how many seconds a row is tried again after so many attempts: min(2^attempts * jitter, 3600) units, or what
-- the destination asked for (p_retry_after_secs, at most an hour, or null) if that is later. jitter: 1.0 ... 1.5, at random.
create or replace function holdfast.retry_delay_secs(p_attempts int, p_unit_secs float8, p_jitter float8,
  p_retry_after_secs float8) returns float8
language sql immutable parallel safe
-- 2^20 is far beyond the limit, and small enough not to overflow.
return greatest(p_unit_secs * least(power(2, greatest(0, least(p_attempts, 20))) * p_jitter, holdfast.retry_max()),
                coalesce(p_retry_after_secs, 0));
