-- The relay's claim: free rows that are due become leased, in a transaction of its own. No partner is called inside it.

-- How many rows each of these destinations may get: 1, the probe, once an open breaker's pause is over; under a rate limit, what
-- is left of one second's worth; 0 in a pause, and where another claim has locked its destination_health. No row: no bound.
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
      and (d.max_per_second is not null or h.open_until is not null or h.paced_until > p_now or h.throttled_until > p_now)
    order by d.id
  loop
    destination_id := v_bound.id;
    rows := 0;
    insert into public.destination_health (tenant_id, destination_id) values (v_bound.tenant_id, v_bound.id)
    on conflict do nothing;
    select * into v_health from public.destination_health h where h.destination_id = v_bound.id
    for no key update skip locked;
    if found and not coalesce(v_health.throttled_until > p_now, false) then
      if v_health.open_until is not null then
        if v_health.open_until <= p_now then
          rows := 1;
          -- No second probe while this one may be in flight.
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

-- Leases rows that the caller has locked, and returns what an attempt needs. p_terms: token, leaseSecs, unitSecs (of the
-- backoff), jitter. The attempt is counted here, so one that kills the relay counts. A row whose lease is lost is due only after
-- its backoff: the next relay begins with another row, and repeated kills spread over the rows.
create or replace function holdfast.relay_lease(p_ids bigint[], p_terms jsonb)
returns table (id bigint, tenant_id uuid, destination_id uuid, kind text, aggregate_id uuid, attempts int, payload text,
  url text, secrets text[], location_id text)
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_until constant timestamptz := clock_timestamp() + make_interval(secs => (p_terms ->> 'leaseSecs')::float8);
begin
  return query
  with leased as (
    update public.outbox o set attempts = o.attempts + 1, lease_token = (p_terms ->> 'token')::uuid, leased_until = v_until,
      next_attempt_at = v_until
        + make_interval(secs => holdfast.retry_delay_secs(o.attempts + 1, (p_terms ->> 'unitSecs')::float8,
                                                          (p_terms ->> 'jitter')::float8, null))
    where o.id = any (p_ids)
    returning o.id, o.destination_id, o.aggregate_id, o.attempts, o.payload)
  select l.id, d.tenant_id, l.destination_id, d.kind, l.aggregate_id, l.attempts,
         case when d.kind in ('shopify_inventory', 'email') then '' else l.payload end, d.url,
         array(select s.secret from public.destination_secret s
               where s.tenant_id = d.tenant_id and s.destination_id = d.id
                 and (s.retires_at is null or s.retires_at > clock_timestamp())
               order by s.created_at desc, s.id),
         d.location_id
  from leased l join public.destination d on d.id = l.destination_id
  order by l.id;
end $$;

drop function if exists holdfast.relay_collapse(uuid, int, timestamptz);
drop function if exists holdfast.relay_rows_of_sku(uuid, uuid, timestamptz, boolean);

-- Locks the due rows of up to p_skus SKUs at a shop, p_rows in all; those of a SKU go out as one push. A SKU with a push in
-- flight is skipped, or two pushes could arrive in the wrong order.
create or replace function holdfast.relay_collapse(p_destination uuid, p_skus int, p_rows int, p_now timestamptz)
returns bigint[] language plpgsql volatile security invoker as $$
declare
  v_ids bigint[] := '{}';
  v_rows bigint[];
  v_seen uuid[] := '{}';
  v_sku uuid;
  v_taken int := 0;
  -- Bounds the search: so many SKUs with a push in flight are skipped at most.
  v_max_skipped constant int := 64;
begin
  while v_taken < p_skus and cardinality(v_ids) < p_rows and cardinality(v_seen) < p_skus + v_max_skipped loop
    select o.aggregate_id into v_sku from public.outbox o
    where o.destination_id = p_destination and o.next_attempt_at <= p_now and o.lease_token is null
      and holdfast.is_pending(o)
      and o.aggregate_id <> all (v_seen)
    order by o.next_attempt_at, o.id limit 1;
    exit when not found;
    v_seen := v_seen || v_sku;
    v_rows := holdfast.relay_rows_of_sku(p_destination, v_sku, p_rows - cardinality(v_ids), p_now, false);
    if cardinality(v_rows) > 0 then
      v_ids := v_ids || v_rows;
      v_taken := v_taken + 1;
    end if;
  end loop;
  return v_ids;
end $$;

-- Locks up to p_rows due rows of one SKU, unless a push is in flight; others go out with the next push. p_lost: those whose
-- lease ran out, else the free ones.
create or replace function holdfast.relay_rows_of_sku(p_destination uuid, p_sku uuid, p_rows int, p_now timestamptz,
  p_lost boolean)
returns bigint[] language plpgsql volatile security invoker as $$
declare
  -- Any number that no other caller of hashtextextended uses: keeps their locks apart.
  v_seed constant bigint := 7306;
begin
  -- Held until the commit, so that no other claim comes between this check and the lease.
  if not pg_try_advisory_xact_lock(hashtextextended(p_destination::text || p_sku::text, v_seed)) then
    return '{}';
  end if;
  if exists (select from public.outbox o
             where o.keyed and o.destination_id = p_destination and o.aggregate_id = p_sku
               and o.lease_token is not null and o.leased_until > p_now
               and holdfast.is_pending(o)) then
    return '{}';
  end if;
  return array(
    select o.id from public.outbox o
    where o.keyed and o.destination_id = p_destination and o.aggregate_id = p_sku and o.next_attempt_at <= p_now
      and (o.lease_token is not null) = p_lost
      and holdfast.is_pending(o)
    order by o.sequence limit p_rows for update skip locked);
end $$;

-- Locks up to p_limit free rows of one destination that are due, oldest due first. At a shop p_limit counts SKUs, and the rows
-- are bounded too.
create or replace function holdfast.relay_take(p_kind text, p_destination uuid, p_from_at timestamptz, p_now timestamptz,
  p_limit int) returns table (id bigint, next_attempt_at timestamptz)
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  -- A fraction of a second's work to claim, and as much to settle.
  v_max_rows constant int := 1000;
begin
  if p_kind = 'shopify_inventory' then
    return query select s.id, null::timestamptz
    from unnest(holdfast.relay_collapse(p_destination, p_limit, v_max_rows, p_now)) s(id);
  else
    return query
    select o.id, o.next_attempt_at from public.outbox o
    where o.destination_id = p_destination and o.next_attempt_at between p_from_at and p_now and o.lease_token is null
      and holdfast.is_pending(o)
    order by o.next_attempt_at, o.id
    limit p_limit
    for update skip locked;
  end if;
end $$;

-- {"slots","after","busy":[{"id","room"}],"roomEach","watermarks":[{"id","secs"}],"lease"}: claims up to `slots` free rows that
-- are due. As many active destinations as possible share the slots evenly, each within its room (roomEach, or less: `busy`),
-- oldest due first. At a shop a slot is a SKU, with its due rows. SKIP LOCKED: rows that another relay has locked do not
-- count. Where nothing can be taken from any of these destinations (at a shop all SKUs may be under way), the round goes on with
-- those behind them. `lease`: p_terms of relay_lease. oldest_due_secs: the destination's next watermark (due.sql). after: where
-- to go on.
create or replace function holdfast.relay_claim(p_call jsonb)
returns table (id bigint, tenant_id uuid, destination_id uuid, kind text, aggregate_id uuid, attempts int, payload text,
  url text, secrets text[], location_id text, after uuid, oldest_due_secs float8)
language plpgsql volatile security invoker set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := clock_timestamp();
  v_slots constant int := p_call ->> 'slots';
  v_busy constant uuid[] := array(select b ->> 'id' from jsonb_array_elements(p_call -> 'busy') b);
  v_room constant int[] := array(select b ->> 'room' from jsonb_array_elements(p_call -> 'busy') b);
  v_marked constant uuid[] := array(select m ->> 'id' from jsonb_array_elements(p_call -> 'watermarks') m);
  v_marks constant timestamptz[] :=
    array(select to_timestamp((m ->> 'secs')::float8) from jsonb_array_elements(p_call -> 'watermarks') m);
  v_passed uuid[] := array(select b.id from unnest(v_busy, v_room) b(id, room) where b.room <= 0);
  v_after uuid := p_call ->> 'after';
  v_destinations uuid[];
  v_limited uuid[];
  v_allowed int[];
  v_ids bigint[];
  v_row_destinations uuid[];
  v_row_due timestamptz[];
begin
  loop
    v_destinations := holdfast.relay_due_destinations(v_after, v_passed, v_slots, v_now, v_marked, v_marks);
    exit when cardinality(v_destinations) = 0;
    select array_agg(a.destination_id), array_agg(a.rows) into v_limited, v_allowed
    from holdfast.relay_allowance(v_destinations, v_now, (p_call -> 'lease' ->> 'leaseSecs')::float8) a;
    select array_agg(due.id), array_agg(d.id), array_agg(due.next_attempt_at) into v_ids, v_row_destinations, v_row_due
    from unnest(v_destinations) with ordinality as d(id, place)
    join public.destination x on x.id = d.id
    left join unnest(v_busy, v_room) b(id, room) on b.id = d.id
    left join unnest(v_limited, v_allowed) a(id, rows) on a.id = d.id
    left join unnest(v_marked, v_marks) m(id, mark) on m.id = d.id
    cross join lateral (select least(coalesce(b.room, (p_call ->> 'roomEach')::int),
                                     v_slots / cardinality(v_destinations)
                                       + (d.place <= v_slots % cardinality(v_destinations))::int,
                                     a.rows) as rows) room
    cross join lateral holdfast.relay_take(x.kind, d.id, coalesce(m.mark, '-infinity'), v_now, room.rows) due;
    v_after := v_destinations[cardinality(v_destinations)];
    exit when v_ids is not null;
    v_passed := v_passed || v_destinations;
  end loop;
  if v_ids is null then
    return;
  end if;
  perform holdfast.relay_pay_pace(v_row_destinations, v_ids, v_now);
  return query
  select l.*, v_after, extract(epoch from f.first)::float8
  from holdfast.relay_lease(v_ids, p_call -> 'lease') l
  left join (select t.id, min(t.due) as first from unnest(v_row_destinations, v_row_due) t(id, due) group by 1) f
    on f.id = l.destination_id
  order by l.id;
end $$;

-- Charges what was taken to the rate limits: each row (at a shop, each push) moves paced_until on by 1 / max_per_second seconds.
-- p_of: the destination of each of p_ids.
create or replace function holdfast.relay_pay_pace(p_of uuid[], p_ids bigint[], p_now timestamptz) returns void
language plpgsql volatile security invoker as $$
begin
  update public.destination_health h
  set paced_until = greatest(h.paced_until, p_now) + make_interval(secs => n.taken::float8 / n.max_per_second)
  from (select d.id, d.max_per_second,
               count(distinct case d.kind when 'shopify_inventory' then o.aggregate_id::text else o.id::text end) as taken
        from unnest(p_of, p_ids) t(destination_id, row_id)
        join public.destination d on d.id = t.destination_id and d.max_per_second is not null
        join public.outbox o on o.id = t.row_id group by 1, 2) n
  where h.destination_id = n.id;
end $$;
