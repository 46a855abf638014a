-- Which destinations a claim serves: round-robin over claimable destinations by a loose index scan. Watermarks (p_marked,
-- p_marks): at a destination that it has just claimed from, a relay starts where it stopped, since delivered rows leave dead
-- index entries below while anybody holds an old snapshot. What commits late below is found by the full rescan once it expires.

-- One step of the scan: the next destination after p_after that has a pending row, and its row that is due first, from its
-- watermark on. destination_id is null at the end; next_attempt_at is null where nothing is above the watermark.
create or replace function holdfast.relay_next_destination(p_after uuid, p_marked uuid[], p_marks timestamptz[],
  out destination_id uuid, out from_at timestamptz, out next_attempt_at timestamptz, out is_leased boolean)
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_next_marked uuid; -- looked at on its own, so the scan ends before it
  v_mark timestamptz;
begin
  select m.id, m.mark into v_next_marked, v_mark from unnest(p_marked, p_marks) m(id, mark)
  where m.id > p_after order by m.id limit 1;
  select o.destination_id, '-infinity', o.next_attempt_at, o.lease_token is not null
  into destination_id, from_at, next_attempt_at, is_leased
  from public.outbox o
  where o.destination_id > p_after and o.destination_id < coalesce(v_next_marked, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    and holdfast.is_pending(o)
  order by o.destination_id, o.next_attempt_at, o.id limit 1;
  if destination_id is not null or v_next_marked is null then
    return;
  end if;
  destination_id := v_next_marked;
  from_at := v_mark;
  select o.next_attempt_at, o.lease_token is not null into next_attempt_at, is_leased
  from public.outbox o
  where o.destination_id = v_next_marked and o.next_attempt_at >= v_mark and holdfast.is_pending(o)
  order by o.next_attempt_at, o.id limit 1;
end $$;

-- Whether a destination whose first row is due may be claimed from: it is active, its breaker is closed or a probe is due, it
-- did not ask for a pause, its rate limit leaves room for one row, its rows stand in their places, and a due row is free.
create or replace function holdfast.relay_may_claim(p_destination uuid, p_from_at timestamptz, p_first_is_leased boolean,
  p_now timestamptz) returns boolean
language plpgsql volatile security invoker as $$
begin
  return exists (select from public.destination d left join public.destination_health h on h.destination_id = d.id
                 where d.id = p_destination and d.state = 'active'
                   and (h.open_until is null or h.open_until <= p_now)
                   and (h.throttled_until is null or h.throttled_until <= p_now)
                   and not exists (select from public.rearrangement r where r.destination_id = p_destination)
                   and (h.paced_until is null
                        or h.paced_until <= p_now + coalesce(interval '1 s' - interval '1 s' / d.max_per_second, '0')))
    and (not p_first_is_leased
         or exists (select from public.outbox o
                    where o.destination_id = p_destination and o.next_attempt_at between p_from_at and p_now
                      and o.lease_token is null and holdfast.is_pending(o)));
end $$;

-- Up to p_limit claimable destinations, round-robin from the one after p_after on. p_full: destinations to leave out.
create or replace function holdfast.relay_due_destinations(p_after uuid, p_full uuid[], p_limit int,
  p_now timestamptz, p_marked uuid[], p_marks timestamptz[])
returns uuid[] language plpgsql volatile security invoker as $$
declare
  v_found uuid[] := '{}';
  v_at uuid := p_after;
  v_wrapped boolean := false;
  v_next record;
begin
  while cardinality(v_found) < p_limit loop
    v_next := holdfast.relay_next_destination(v_at, p_marked, p_marks);
    if v_next.destination_id is null then
      exit when v_wrapped;
      v_wrapped := true;
      v_at := '00000000-0000-0000-0000-000000000000';
      continue;
    end if;
    exit when v_wrapped and v_next.destination_id > p_after;
    v_at := v_next.destination_id;
    if v_next.next_attempt_at <= p_now and v_at <> all (p_full)
       and holdfast.relay_may_claim(v_at, v_next.from_at, v_next.is_leased, p_now) then
      v_found := v_found || v_at;
    end if;
  end loop;
  return v_found;
end $$;
