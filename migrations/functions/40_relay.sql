-- The relay's side of the outbox: claim, settle, and what becomes of rows whose relay was lost. Each is called as a
-- transaction of its own, and no call to a partner is made while one is open.
--
-- A row is pending while it has no end (processed, dead, discarded). A pending row is free without a lease_token, held
-- while leased_until lies ahead, and lost after that: its relay died or froze, perhaps because of it.
-- The clock is always the database's.

-- Up to p_limit destinations that have a free due row, going round from the one after p_after, so that none waits
-- for more than one round. Steps through outbox_pending from destination to destination: what is idle costs nothing,
-- what waits costs one step. p_full: destinations to leave out.
create or replace function holdfast.relay_due_destinations(p_after uuid, p_full uuid[], p_limit int,
  p_now timestamptz) returns uuid[] language plpgsql volatile security invoker as $$
declare
  v_found uuid[] := '{}';
  v_at uuid := p_after;
  v_wrapped boolean := false;
  v_head record;
begin
  while cardinality(v_found) < p_limit loop
    select o.destination_id, o.next_attempt_at, o.lease_token into v_head
    from public.outbox o
    where o.destination_id > v_at
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
    order by o.destination_id, o.next_attempt_at, o.id limit 1;
    if not found then
      exit when v_wrapped;
      v_wrapped := true;
      v_at := '00000000-0000-0000-0000-000000000000';
      continue;
    end if;
    exit when v_wrapped and v_head.destination_id > p_after;
    v_at := v_head.destination_id;
    if v_head.next_attempt_at <= p_now and v_at <> all (p_full)
       and exists (select from public.destination d
                   where d.id = v_at and d.state = 'active' and d.kind = 'webhook')
       and (v_head.lease_token is null
            or exists (select from public.outbox o
                       where o.destination_id = v_at and o.next_attempt_at <= p_now and o.lease_token is null
                         and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null)) then
      v_found := v_found || v_at;
    end if;
  end loop;
  return v_found;
end $$;

-- Leases rows that the caller has locked, and hands them out with all that an attempt needs. The attempt is counted
-- here, so that one that kills the relay is an attempt. Should the lease be lost, the row is due again only after
-- its backoff: the next relay then begins with another, and repeated kills spread over the rows.
create or replace function holdfast.relay_lease(p_ids bigint[], p_token uuid, p_lease_secs float8, p_unit_secs float8,
  p_jitter float8)
returns table (id bigint, destination_id uuid, attempts int, payload text, url text, secrets text[])
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_until constant timestamptz := clock_timestamp() + make_interval(secs => p_lease_secs);
begin
  return query
  with leased as (
    update public.outbox o set attempts = o.attempts + 1, lease_token = p_token, leased_until = v_until,
      next_attempt_at = v_until
        + make_interval(secs => p_unit_secs * least(power(2, least(o.attempts + 1, 20)) * p_jitter, 3600))
    where o.id = any (p_ids)
    returning o.id, o.destination_id, o.attempts, o.payload)
  select l.id, l.destination_id, l.attempts, l.payload, d.url,
         array(select s.secret from public.destination_secret s
               where s.tenant_id = d.tenant_id and s.destination_id = d.id
                 and (s.retires_at is null or s.retires_at > clock_timestamp())
               order by s.created_at desc, s.id)
  from leased l join public.destination d on d.id = l.destination_id
  order by l.id;
end $$;

-- Claims up to p_slots free rows that are due at active webhooks, oldest due first within each destination. As many
-- destinations as possible share the batch evenly, each within its room: p_room[i] for p_busy[i], p_room_each for
-- all others. SKIP LOCKED: relays that claim at once pass each other, and the LIMIT counts unlocked rows.
create or replace function holdfast.relay_claim(p_slots int, p_after uuid, p_busy uuid[], p_room int[],
  p_room_each int, p_token uuid, p_lease_secs float8, p_unit_secs float8, p_jitter float8)
returns table (id bigint, destination_id uuid, attempts int, payload text, url text, secrets text[], after uuid)
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := clock_timestamp();
  v_full constant uuid[] := array(select b.id from unnest(p_busy, p_room) b(id, room) where b.room <= 0);
  v_dests constant uuid[] := holdfast.relay_due_destinations(p_after, v_full, p_slots, v_now);
  v_each constant int := p_slots / greatest(cardinality(v_dests), 1);
  v_more constant int := p_slots % greatest(cardinality(v_dests), 1);
  v_ids bigint[];
begin
  select array_agg(due.id) into v_ids
  from unnest(v_dests) with ordinality as d(id, place)
  left join unnest(p_busy, p_room) b(id, room) on b.id = d.id
  cross join lateral (
    select o.id from public.outbox o
    where o.destination_id = d.id and o.next_attempt_at <= v_now and o.lease_token is null
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
    order by o.next_attempt_at, o.id
    limit least(coalesce(b.room, p_room_each), v_each + (d.place <= v_more)::int)
    for update skip locked) due;
  return query
  select l.*, v_dests[cardinality(v_dests)]
  from holdfast.relay_lease(v_ids, p_token, p_lease_secs, p_unit_secs, p_jitter) l;
end $$;

-- Claims one lost row, alone, from any destination: those not in p_troubled first, then the oldest due.
create or replace function holdfast.relay_claim_lost(p_troubled uuid[], p_token uuid, p_lease_secs float8,
  p_unit_secs float8, p_jitter float8)
returns table (id bigint, destination_id uuid, attempts int, payload text, url text, secrets text[])
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := clock_timestamp();
begin
  return query
  select l.*
  from holdfast.relay_lease(array(
    select o.id from public.outbox o join public.destination d on d.id = o.destination_id
    where o.lease_token is not null and o.leased_until <= v_now and o.next_attempt_at <= v_now
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
      and d.state = 'active' and d.kind = 'webhook' and o.attempts < d.max_attempts
    order by o.destination_id = any (p_troubled), o.next_attempt_at, o.id limit 1
    for update of o skip locked), p_token, p_lease_secs, p_unit_secs, p_jitter) l;
end $$;

-- Gives up lost rows that have no attempt left, up to 100 at a time, and tells whether a lost row is due.
create or replace function holdfast.relay_sweep_lost(out dead_lettered int, out lost_due boolean)
language plpgsql volatile security invoker as $$
declare
  v_now constant timestamptz := clock_timestamp();
begin
  update public.outbox o set dead_lettered_at = v_now, lease_token = null, leased_until = null,
    last_error = format('The relay did not survive this event: attempt %s ended without a result, and it was the last.',
      o.attempts)
  where o.id = any (array(
    select x.id from public.outbox x join public.destination d on d.id = x.destination_id
    where x.lease_token is not null and x.leased_until <= v_now and x.attempts >= d.max_attempts
      and x.processed_at is null and x.dead_lettered_at is null and x.discarded_at is null
    order by x.id limit 100 for update of x skip locked));
  get diagnostics dead_lettered = row_count;
  lost_due := exists (
    select from public.outbox o join public.destination d on d.id = o.destination_id
    where o.lease_token is not null and o.leased_until <= v_now and o.next_attempt_at <= v_now
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
      and d.state = 'active' and d.kind = 'webhook' and o.attempts < d.max_attempts);
end $$;

-- Switches a destination off because its server said that it is gone, and tells its tenant. Its events wait.
create or replace function holdfast.disable_gone_destination(p_destination uuid) returns void
language plpgsql volatile security invoker as $$
declare
  v_tenant uuid;
  v_name text;
  v_sequence bigint;
begin
  update public.destination d set state = 'disabled' where d.id = p_destination and d.state <> 'disabled'
  returning d.tenant_id, d.name into v_tenant, v_name;
  if not found then
    return; -- another delivery was told the same
  end if;
  update public.tenant t set event_sequence = event_sequence + 1 where t.id = v_tenant
  returning t.event_sequence into v_sequence;
  perform holdfast.emit(v_tenant, array[row('destination.disabled', 'tenant', v_tenant, v_sequence, null,
    format('{"destinationId":"%s","name":%s,"reason":"answered 410 Gone"}', p_destination, holdfast.quote(v_name))
    )::holdfast.event]);
end $$;

-- Settles a set of attempts. p_outcomes: 'delivered'; 'failed', next due in p_delay_secs or, with no attempt left,
-- a dead letter; 'gone', which disables the destination and leaves the row pending, due when it is enabled again.
-- A row is settled only by the token that holds it, and within the lease: what is not returned was refused.
create or replace function holdfast.relay_settle(p_ids bigint[], p_tokens uuid[], p_outcomes text[], p_errors text[],
  p_delay_secs float8[])
returns table (id bigint, outcome text) language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_ids bigint[];
  v_outcomes text[];
  v_gone uuid;
begin
  -- In the order of their ids, like everyone who locks several rows.
  perform from public.outbox o where o.id = any (p_ids) order by o.id for no key update;
  v_now := clock_timestamp();
  with settled as (
    update public.outbox o set lease_token = null, leased_until = null,
      processed_at = case when r.outcome = 'delivered' then v_now end,
      dead_lettered_at = case when r.outcome = 'failed' and o.attempts >= d.max_attempts then v_now end,
      last_error = coalesce(r.error, o.last_error),
      next_attempt_at = v_now + make_interval(secs => coalesce(r.delay_secs, 0))
    from unnest(p_ids, p_tokens, p_outcomes, p_errors, p_delay_secs) r(id, token, outcome, error, delay_secs),
         public.destination d
    where o.id = any (p_ids) and o.id = r.id and d.id = o.destination_id
      and o.lease_token = r.token and o.leased_until > v_now
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
    returning o.id, case when o.dead_lettered_at is not null then 'dead' else r.outcome end as outcome)
  select array_agg(s.id), array_agg(s.outcome) into v_ids, v_outcomes from settled s;
  for v_gone in
    select distinct o.destination_id from unnest(v_ids, v_outcomes) s(id, outcome) join public.outbox o on o.id = s.id
    where s.outcome = 'gone' order by 1
  loop
    perform holdfast.disable_gone_destination(v_gone);
  end loop;
  return query select s.id, s.outcome from unnest(v_ids, v_outcomes) s(id, outcome);
end $$;
