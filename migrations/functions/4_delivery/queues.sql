-- Ordered destinations: the queue of one aggregate's events at one destination. Only its head has a due time.

-- The queues of those of these rows that belong to ordered destinations, each once.
create or replace function holdfast.queues_of(p_ids bigint[], out destinations uuid[], out aggregates uuid[])
language sql stable set enable_seqscan = off as $$
  select array_agg(q.destination_id), array_agg(q.aggregate_id)
  from (select distinct o.destination_id, o.aggregate_id from public.outbox o
        where o.id = any (p_ids) and (select d.ordered from public.destination d where d.id = o.destination_id)) q
$$;

-- The ids of the heads of these queues, in their order.
create or replace function holdfast.heads_of(p_destinations uuid[], p_aggregates uuid[]) returns bigint[]
language sql stable set enable_seqscan = off as $$
  select array_agg(h.id order by h.id)
  from unnest(p_destinations, p_aggregates) q(destination_id, aggregate_id)
  cross join lateral (
    select x.id from public.outbox x
    where x.keyed and x.destination_id = q.destination_id and x.aggregate_id = q.aggregate_id
      and holdfast.is_pending(x)
    order by x.sequence, x.id limit 1) h
$$;

-- Gives these rows a due time where they have none. (A head in backoff has one.) Returns how many it woke.
create or replace function holdfast.wake(p_ids bigint[]) returns int
language plpgsql volatile security invoker set enable_seqscan = off as $$
declare
  v_woken int;
begin
  update public.outbox o set next_attempt_at = clock_timestamp()
  where o.id = any (p_ids) and o.next_attempt_at = 'infinity' and holdfast.outbox_state(o) = 'pending';
  get diagnostics v_woken = row_count;
  return v_woken;
end $$;

-- Wakes the heads of these queues.
create or replace function holdfast.wake_next(p_destinations uuid[], p_aggregates uuid[]) returns void
language plpgsql volatile security invoker as $$
begin
  perform holdfast.wake(holdfast.heads_of(p_destinations, p_aggregates));
end $$;

-- Wakes the rows behind these in their queues. Returns whether there may be one.
create or replace function holdfast.wake_behind(p_ids bigint[]) returns boolean
language plpgsql volatile security invoker as $$
declare
  v_queues constant record := holdfast.queues_of(p_ids);
begin
  if v_queues.destinations is null then
    return false;
  end if;
  perform holdfast.wake_next(v_queues.destinations, v_queues.aggregates);
  return true;
end $$;

-- Makes these rows wait, unless a relay holds them.
create or replace function holdfast.make_wait(p_ids bigint[]) returns void
language plpgsql volatile security invoker set enable_seqscan = off as $$
begin
  update public.outbox o set next_attempt_at = 'infinity', wait_checked = false
  where o.id = any (p_ids) and o.lease_token is null and isfinite(o.next_attempt_at)
    and holdfast.outbox_state(o) = 'pending';
end $$;

-- Wakes heads that nobody woke: their event was written while the one before was settled, and neither transaction saw the other.
-- {"destinationId","aggregateId","most"}: visits up to `most` queues after that one of which a row's wait is not checked yet, and
-- checks up to `most` of their rows. destination_id, aggregate_id: the queue visited last, null at the end. woken: heads.
-- more: whether there is more to check at once.
create or replace function holdfast.relay_check_waiting(p_call jsonb, out destination_id uuid, out aggregate_id uuid,
  out woken int, out more boolean)
language plpgsql volatile security invoker set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_most constant int := p_call ->> 'most';
  v_at record;
  v_destinations uuid[] := '{}';
  v_aggregates uuid[] := '{}';
begin
  select (p_call ->> 'destinationId')::uuid as destination_id, (p_call ->> 'aggregateId')::uuid as aggregate_id into v_at;
  for v_step in 1 .. v_most loop
    select o.destination_id, o.aggregate_id into v_at from public.outbox o
    where (o.destination_id, o.aggregate_id) > (v_at.destination_id, v_at.aggregate_id)
      and not isfinite(o.next_attempt_at) and not o.wait_checked and holdfast.is_pending(o)
    order by o.destination_id, o.aggregate_id limit 1;
    exit when not found;
    v_destinations := v_destinations || v_at.destination_id;
    v_aggregates := v_aggregates || v_at.aggregate_id;
  end loop;
  destination_id := v_at.destination_id;
  aggregate_id := v_at.aggregate_id;
  woken := holdfast.wake(holdfast.heads_of(v_destinations, v_aggregates));
  more := holdfast.note_checked(v_destinations, v_aggregates, v_most) = v_most or destination_id is not null;
end $$;

-- Marks up to p_most rows that wait in these queues as checked, and returns how many there were to be marked. What is checked stays
-- so: this transaction holds the head of its queue, so whoever settles that one, or any later one, does it afterwards and sees
-- the row. A queue whose head is locked just now is left for the next time.
create or replace function holdfast.note_checked(p_destinations uuid[], p_aggregates uuid[], p_most int) returns int
language plpgsql volatile security invoker set enable_seqscan = off as $$
declare
  v_ids constant bigint[] := array(
    select x.id from unnest(p_destinations, p_aggregates) q(destination_id, aggregate_id)
    cross join lateral (
      select o.id from public.outbox o
      where o.destination_id = q.destination_id and o.aggregate_id = q.aggregate_id
        and not isfinite(o.next_attempt_at) and not o.wait_checked and holdfast.is_pending(o)
      limit p_most) x
    limit p_most);
  v_queues constant record := holdfast.queues_of(v_ids);
  v_heads bigint[];
begin
  v_heads := array(
    select o.id from public.outbox o
    where o.id = any (holdfast.heads_of(v_queues.destinations, v_queues.aggregates))
      and o.next_attempt_at < 'infinity' and holdfast.outbox_state(o) = 'pending'
    order by o.id for no key update skip locked);
  update public.outbox o set wait_checked = true
  where o.ctid = any (array(
    select x.ctid
    from unnest(v_heads) h(id)
    cross join lateral (select r.destination_id, r.aggregate_id from public.outbox r where r.id = h.id offset 0) q
    cross join lateral (
      select r.ctid from public.outbox r
      where r.destination_id = q.destination_id and r.aggregate_id = q.aggregate_id
        and not isfinite(r.next_attempt_at) and not r.wait_checked and holdfast.is_pending(r)
      limit p_most for no key update skip locked) x
    limit p_most));
  return cardinality(v_ids);
end $$;

-- Begins to put a destination's pending rows in the places that its new `ordered` wants; a small backlog is done with at once.
create or replace function holdfast.begin_rearrangement(p_tenant uuid, p_destination uuid, p_most int) returns void
language plpgsql volatile security invoker as $$
begin
  insert into public.rearrangement (tenant_id, destination_id) values (p_tenant, p_destination)
  on conflict (destination_id) do update set started_at = clock_timestamp(), horizon = null;
  perform holdfast.rearrange(p_destination, p_most);
end $$;

-- {"most"}: goes on with the rearrangement of one destination by up to `most` rows. step: more, if there is more to do at once;
-- waits, for transactions to end; done, so that it can be claimed from; null if there is no rearrangement.
create or replace function holdfast.relay_rearrange(p_call jsonb, out step text)
language plpgsql volatile security invoker as $$
declare
  v_destination uuid;
  v_next_xid xid8;
begin
  -- The snapshot of this statement sees the switch.
  select r.destination_id, pg_snapshot_xmax(pg_current_snapshot()) into v_destination, v_next_xid
  from public.rearrangement r order by r.started_at, r.destination_id limit 1 for no key update skip locked;
  if found then
    update public.rearrangement r set horizon = v_next_xid where r.destination_id = v_destination and r.horizon is null;
    step := holdfast.rearrange(v_destination, (p_call ->> 'most')::int);
  end if;
end $$;

-- One step of a rearrangement that the caller holds; returns `step` of relay_rearrange. Ordered: all that is due, or will
-- be, joins its queue; at the end the heads are woken. No longer ordered: what waits is due. It is done when every transaction
-- has ended that may have read the old `ordered`, and nothing is left in a wrong place; its events are claimed from then on.
create or replace function holdfast.rearrange(p_destination uuid, p_most int) returns text
language plpgsql volatile security invoker set enable_seqscan = off as $$
declare
  v_ordered constant boolean := (select d.ordered from public.destination d where d.id = p_destination);
  v_all_seen constant boolean := (select r.horizon <= pg_snapshot_xmin(pg_current_snapshot())
                                  from public.rearrangement r where r.destination_id = p_destination);
  -- Where the rows in a wrong place stand in the index: with a due time, or without.
  v_from constant timestamptz := case when v_ordered then '-infinity' else 'infinity' end;
  v_to constant timestamptz := case when v_ordered then '9999-12-31' else 'infinity' end;
  v_ids bigint[];
  v_wrong bigint;
begin
  select array_agg(x.id), count(*) filter (where x.keyed <> v_ordered) into v_ids, v_wrong
  from (select o.id, o.keyed from public.outbox o
        where o.destination_id = p_destination and holdfast.is_pending(o)
          and o.next_attempt_at between v_from and v_to and (o.lease_token is null or o.keyed <> v_ordered)
        order by o.next_attempt_at, o.id limit p_most) x;
  update public.outbox o set keyed = v_ordered, wait_checked = false, next_attempt_at = case
      when o.lease_token is not null then o.next_attempt_at
      when v_ordered then 'infinity' else clock_timestamp() end
  where o.id = any (v_ids) and holdfast.outbox_state(o) = 'pending';
  if cardinality(v_ids) = p_most then
    return 'more';
  end if;
  if v_ordered then
    perform holdfast.wake_behind(v_ids);
  end if;
  if v_wrong > 0 then
    return 'more';
  elsif v_all_seen then
    delete from public.rearrangement r where r.destination_id = p_destination;
    return 'done';
  end if;
  return 'waits';
end $$;

-- Discards pending or dead rows, which the caller has locked in the order of their ids; those behind them are woken.
create or replace function holdfast.set_aside(p_ids bigint[], p_reason text) returns void
language plpgsql volatile security invoker as $$
begin
  update public.outbox o set discarded_at = clock_timestamp(), discard_reason = p_reason, dead_lettered_at = null,
    lease_token = null, leased_until = null
  where o.id = any (p_ids);
  perform holdfast.wake_behind(p_ids);
end $$;

-- Discards up to p_most pending rows of a deleted destination; returns how many.
create or replace function holdfast.discard_rest(p_destination uuid, p_reason text, p_most int) returns int
language plpgsql volatile security invoker set enable_seqscan = off as $$
declare
  v_ids constant bigint[] := array(
    select o.id from public.outbox o
    where o.id = any (array(select x.id from public.outbox x where x.destination_id = p_destination and holdfast.is_pending(x)
                            order by x.next_attempt_at, x.id limit p_most))
      and holdfast.outbox_state(o) = 'pending'
    order by o.id for no key update);
begin
  perform holdfast.set_aside(v_ids, p_reason);
  return cardinality(v_ids);
end $$;

-- {"most"}: goes on with the end of one deleted destination by up to `most` rows. more: whether there is more to do at once. It is
-- done when every transaction has ended that may have seen the destination, and nothing is pending.
create or replace function holdfast.relay_end_destination(p_call jsonb, out more boolean)
language plpgsql volatile security invoker as $$
declare
  v_most constant int := p_call ->> 'most';
  v_end public.destination_end;
  v_next_xid xid8;
  v_discarded int;
begin
  more := false;
  select e.*, pg_snapshot_xmax(pg_current_snapshot()) into v_end.tenant_id, v_end.destination_id, v_end.reason, v_end.ended_at,
    v_end.horizon, v_end.done_at, v_next_xid
  from public.destination_end e where e.done_at is null order by e.ended_at limit 1 for no key update skip locked;
  if found then
    v_end.horizon := coalesce(v_end.horizon, v_next_xid);
    v_discarded := holdfast.discard_rest(v_end.destination_id, v_end.reason, v_most);
    more := v_discarded = v_most;
    update public.destination_end e set horizon = v_end.horizon, done_at = case
      when not more and v_end.horizon <= pg_snapshot_xmin(pg_current_snapshot()) then clock_timestamp() end
    where e.destination_id = v_end.destination_id;
  end if;
end $$;
