-- The relay's side of the outbox: claim. (43_relay_settle.sql: settle, health, and what becomes of lost rows.) Each is
-- called as a transaction of its own, and no call to a partner is made while one is open.
--
-- A row is pending while it has no end (processed, dead, discarded). A pending row is free without a lease_token, held
-- while leased_until lies ahead, and lost after that: its relay died or froze, perhaps because of it.
-- The clock is always the database's.
--
-- Floors: a relay passes how far it has come at destinations it has just claimed from (p_floor_of, p_floor). Delivered rows
-- leave dead entries below, which cannot be removed while anybody holds an old snapshot, and which need not be walked
-- again for every batch. What commits late below a floor is found when the relay leaves the floor out, every few seconds.

drop function if exists holdfast.relay_due_destinations(uuid, uuid[], int, timestamptz);
drop function if exists holdfast.relay_claim(int, uuid, uuid[], int[], int, uuid, float8, float8, float8);
drop function if exists holdfast.relay_claim_lost(uuid[], uuid, float8, float8, float8);
drop function if exists holdfast.relay_lease(bigint[], uuid, float8, float8, float8);

-- Up to p_limit destinations that have a free due row and may get it, going round from the one after p_after, so that
-- none waits for more than one round. Steps through outbox_pending from destination to destination: what is idle costs
-- nothing, what waits costs one step. p_full: destinations to leave out.
create or replace function holdfast.relay_due_destinations(p_after uuid, p_full uuid[], p_limit int,
  p_now timestamptz, p_floor_of uuid[], p_floor timestamptz[])
returns uuid[] language plpgsql volatile security invoker as $$
declare
  v_found uuid[] := '{}';
  v_at uuid := p_after;
  v_wrapped boolean := false;
  v_stop uuid; -- the next destination that has a floor: stepping ends before it
  v_floor timestamptz;
  v_head record;
begin
  while cardinality(v_found) < p_limit loop
    select f.id, f.floor into v_stop, v_floor from unnest(p_floor_of, p_floor) f(id, floor)
    where f.id > v_at order by f.id limit 1;
    select o.destination_id, o.next_attempt_at, o.lease_token into v_head
    from public.outbox o
    where o.destination_id > v_at and o.destination_id < coalesce(v_stop, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
    order by o.destination_id, o.next_attempt_at, o.id limit 1;
    if found then
      v_floor := '-infinity';
    elsif v_stop is not null then
      select v_stop as destination_id, o.next_attempt_at, o.lease_token into v_head
      from (select 1) one left join lateral (
        select x.next_attempt_at, x.lease_token from public.outbox x
        where x.destination_id = v_stop and x.next_attempt_at >= v_floor
          and x.processed_at is null and x.dead_lettered_at is null and x.discarded_at is null
        order by x.next_attempt_at, x.id limit 1) o on true;
    elsif v_wrapped then
      exit;
    else
      v_wrapped := true;
      v_at := '00000000-0000-0000-0000-000000000000';
      continue;
    end if;
    exit when v_wrapped and v_head.destination_id > p_after;
    v_at := v_head.destination_id;
    if v_head.next_attempt_at <= p_now and v_at <> all (p_full)
       and exists (select from public.destination d left join public.destination_health h on h.destination_id = d.id
                   where d.id = v_at and d.state = 'active'
                     and (h.open_until is null or h.open_until <= p_now)
                     and (h.paced_until is null
                          or h.paced_until <= p_now + coalesce(interval '1 s' - interval '1 s' / d.max_per_second, '0')))
       and (v_head.lease_token is null
            or exists (select from public.outbox o
                       where o.destination_id = v_at and o.next_attempt_at between v_floor and p_now
                         and o.lease_token is null
                         and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null)) then
      v_found := v_found || v_at;
    end if;
  end loop;
  return v_found;
end $$;

-- How many rows each of these destinations may get now: one where its breaker is open and a probe is due; what is left
-- of its allowance where it has one (a second's worth may go at once). Holds the rows of destination_health that it
-- decides by; a destination that another relay is deciding about gets none. No row in the answer: no bound.
create or replace function holdfast.relay_allowance(p_destinations uuid[], p_now timestamptz, p_probe_secs float8)
returns table (destination_id uuid, rows int) language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_bound record;
  v_health public.destination_health;
begin
  for v_bound in
    select d.id, d.tenant_id, d.max_per_second
    from public.destination d left join public.destination_health h on h.destination_id = d.id
    where d.id = any (p_destinations)
      and (d.max_per_second is not null or h.open_until is not null or h.paced_until > p_now)
    order by d.id
  loop
    destination_id := v_bound.id;
    rows := 0;
    insert into public.destination_health (tenant_id, destination_id) values (v_bound.tenant_id, v_bound.id)
    on conflict do nothing;
    select * into v_health from public.destination_health h where h.destination_id = v_bound.id
    for no key update skip locked;
    if found then
      if v_health.open_until is not null then
        if v_health.open_until <= p_now then
          rows := 1;
          -- Nobody else probes while this one may be under way.
          update public.destination_health h set probing = true, open_until = p_now + make_interval(secs => p_probe_secs)
          where h.destination_id = v_bound.id;
        end if;
      elsif v_bound.max_per_second is not null then
        rows := greatest(0, floor(v_bound.max_per_second
          * (1 - extract(epoch from greatest(v_health.paced_until, p_now) - p_now))));
      elsif v_health.paced_until is null or v_health.paced_until <= p_now then
        continue;
      end if;
    end if;
    return next;
  end loop;
end $$;

-- Leases rows that the caller has locked, and hands them out with all that an attempt needs. The attempt is counted
-- here, so that one that kills the relay is an attempt. Should the lease be lost, the row is due again only after
-- its backoff: the next relay then begins with another, and repeated kills spread over the rows.
create or replace function holdfast.relay_lease(p_ids bigint[], p_token uuid, p_lease_secs float8, p_unit_secs float8,
  p_jitter float8)
returns table (id bigint, tenant_id uuid, destination_id uuid, kind text, aggregate_id uuid, attempts int, payload text,
  url text, secrets text[], location_id text)
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
    returning o.id, o.destination_id, o.aggregate_id, o.attempts, o.payload)
  select l.id, d.tenant_id, l.destination_id, d.kind, l.aggregate_id, l.attempts,
         case when d.kind = 'webhook' then l.payload else '' end, d.url,
         array(select s.secret from public.destination_secret s
               where s.tenant_id = d.tenant_id and s.destination_id = d.id
                 and (s.retires_at is null or s.retires_at > clock_timestamp())
               order by s.created_at desc, s.id),
         d.location_id
  from leased l join public.destination d on d.id = l.destination_id
  order by l.id;
end $$;

-- All due rows of up to p_skus SKUs at a shop, locked: they go out as one push. A SKU that is being pushed is left
-- alone, or two pushes could arrive in the wrong order.
create or replace function holdfast.relay_collapse(p_destination uuid, p_skus int, p_now timestamptz)
returns bigint[] language plpgsql volatile security invoker as $$
declare
  v_ids bigint[] := '{}';
  v_more bigint[];
  v_seen uuid[] := '{}';
  v_sku uuid;
  v_taken int := 0;
begin
  while v_taken < p_skus and cardinality(v_seen) < p_skus + 64 loop
    select o.aggregate_id into v_sku from public.outbox o
    where o.destination_id = p_destination and o.next_attempt_at <= p_now and o.lease_token is null
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
      and o.aggregate_id <> all (v_seen)
    order by o.next_attempt_at, o.id limit 1;
    exit when not found;
    v_seen := v_seen || v_sku;
    v_more := holdfast.relay_rows_of_sku(p_destination, v_sku, p_now, false);
    if cardinality(v_more) > 0 then
      v_ids := v_ids || v_more;
      v_taken := v_taken + 1;
    end if;
  end loop;
  return v_ids;
end $$;

-- The due rows of one SKU, locked, unless it is being pushed. p_lost: those whose lease ran out, otherwise the free ones.
create or replace function holdfast.relay_rows_of_sku(p_destination uuid, p_sku uuid, p_now timestamptz, p_lost boolean)
returns bigint[] language plpgsql volatile security invoker as $$
begin
  -- Until this claim commits no other one can come between the look and the lease.
  if not pg_try_advisory_xact_lock(hashtextextended(p_destination::text || p_sku::text, 7306)) then
    return '{}';
  end if;
  if exists (select from public.outbox o
             where o.keyed and o.destination_id = p_destination and o.aggregate_id = p_sku
               and o.lease_token is not null and o.leased_until > p_now
               and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null) then
    return '{}';
  end if;
  return array(
    select o.id from public.outbox o
    where o.keyed and o.destination_id = p_destination and o.aggregate_id = p_sku and o.next_attempt_at <= p_now
      and (o.lease_token is not null) = p_lost
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
    order by o.sequence limit 5000 for update skip locked);
end $$;

-- Up to p_limit free rows of one destination that are due, locked: oldest due first. At a shop a SKU counts as one, with
-- all its due rows.
create or replace function holdfast.relay_take(p_kind text, p_destination uuid, p_floor timestamptz, p_now timestamptz,
  p_limit int) returns table (id bigint, next_attempt_at timestamptz)
language plpgsql volatile security invoker as $$
#variable_conflict use_column
begin
  if p_kind = 'shopify_inventory' then
    return query select s.id, null::timestamptz from unnest(holdfast.relay_collapse(p_destination, p_limit, p_now)) s(id);
  else
    return query
    select o.id, o.next_attempt_at from public.outbox o
    where o.destination_id = p_destination and o.next_attempt_at between p_floor and p_now and o.lease_token is null
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
    order by o.next_attempt_at, o.id
    limit p_limit
    for update skip locked;
  end if;
end $$;

-- Claims up to p_slots free rows that are due at active destinations, oldest due first within each. As many destinations
-- as possible share the batch evenly, each within its room: p_room[i] for p_busy[i], p_room_each for all others.
-- SKIP LOCKED: relays that claim at once pass each other, and the LIMIT counts unlocked rows. At a shop a slot is a SKU,
-- with all its due rows. floor_secs: from when on this destination has free rows, for the next claim.
create or replace function holdfast.relay_claim(p_slots int, p_after uuid, p_busy uuid[], p_room int[],
  p_room_each int, p_token uuid, p_lease_secs float8, p_unit_secs float8, p_jitter float8,
  p_floor_of uuid[], p_floor_secs float8[])
returns table (id bigint, tenant_id uuid, destination_id uuid, kind text, aggregate_id uuid, attempts int, payload text,
  url text, secrets text[], location_id text, after uuid, floor_secs float8)
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := clock_timestamp();
  v_full constant uuid[] := array(select b.id from unnest(p_busy, p_room) b(id, room) where b.room <= 0);
  v_floors constant timestamptz[] := array(select to_timestamp(f.secs) from unnest(p_floor_secs) with ordinality f(secs, n)
                                           order by f.n);
  v_dests constant uuid[] :=
    holdfast.relay_due_destinations(p_after, v_full, p_slots, v_now, p_floor_of, v_floors);
  v_each constant int := p_slots / greatest(cardinality(v_dests), 1);
  v_more constant int := p_slots % greatest(cardinality(v_dests), 1);
  v_limits uuid[];
  v_allowed int[];
  v_ids bigint[];
  v_of uuid[];
  v_due timestamptz[];
begin
  if cardinality(v_dests) = 0 then
    return;
  end if;
  select array_agg(a.destination_id), array_agg(a.rows) into v_limits, v_allowed
  from holdfast.relay_allowance(v_dests, v_now, p_lease_secs) a;
  select array_agg(due.id), array_agg(d.id), array_agg(due.next_attempt_at) into v_ids, v_of, v_due
  from unnest(v_dests) with ordinality as d(id, place)
  join public.destination x on x.id = d.id
  left join unnest(p_busy, p_room) b(id, room) on b.id = d.id
  left join unnest(v_limits, v_allowed) a(id, rows) on a.id = d.id
  left join unnest(p_floor_of, v_floors) f(id, floor) on f.id = d.id
  cross join lateral (select least(coalesce(b.room, p_room_each), v_each + (d.place <= v_more)::int, a.rows) as rows) room
  cross join lateral holdfast.relay_take(x.kind, d.id, coalesce(f.floor, '-infinity'), v_now, room.rows) due;
  -- What was taken of an allowance is paid for at the pace that the destination takes; at a shop, by pushes.
  update public.destination_health h
  set paced_until = greatest(h.paced_until, v_now) + make_interval(secs => n.taken::float8 / n.max_per_second)
  from (select d.id, d.max_per_second,
               count(distinct case d.kind when 'shopify_inventory' then o.aggregate_id::text else o.id::text end) as taken
        from unnest(v_of, v_ids) t(destination_id, row_id)
        join public.destination d on d.id = t.destination_id and d.max_per_second is not null
        join public.outbox o on o.id = t.row_id group by 1, 2) n
  where h.destination_id = n.id;
  return query
  select l.*, v_dests[cardinality(v_dests)], extract(epoch from f.first)::float8
  from holdfast.relay_lease(v_ids, p_token, p_lease_secs, p_unit_secs, p_jitter) l
  left join (select t.id, min(t.due) as first from unnest(v_of, v_due) t(id, due) group by 1) f
    on f.id = l.destination_id
  order by l.id;
end $$;

-- Claims one lost row, alone, from any destination: those not in p_troubled first, then the oldest due. At a shop it comes
-- with the lost rows of its SKU, being one push.
create or replace function holdfast.relay_claim_lost(p_troubled uuid[], p_token uuid, p_lease_secs float8,
  p_unit_secs float8, p_jitter float8)
returns table (id bigint, tenant_id uuid, destination_id uuid, kind text, aggregate_id uuid, attempts int, payload text,
  url text, secrets text[], location_id text)
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := clock_timestamp();
  v_lost record;
  v_ids bigint[];
begin
  select o.id, o.destination_id, o.aggregate_id, d.kind into v_lost
  from public.outbox o join public.destination d on d.id = o.destination_id
  left join public.destination_health h on h.destination_id = d.id
  where o.lease_token is not null and o.leased_until <= v_now and o.next_attempt_at <= v_now
    and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
    and d.state = 'active' and o.attempts < d.max_attempts
    and (h.open_until is null or h.open_until <= v_now)
  order by o.destination_id = any (p_troubled), o.next_attempt_at, o.id limit 1
  for update of o skip locked;
  if not found then
    return;
  end if;
  v_ids := array[v_lost.id];
  if v_lost.kind = 'shopify_inventory' then
    v_ids := holdfast.relay_rows_of_sku(v_lost.destination_id, v_lost.aggregate_id, v_now, true);
  end if;
  return query select l.* from holdfast.relay_lease(v_ids, p_token, p_lease_secs, p_unit_secs, p_jitter) l;
end $$;
