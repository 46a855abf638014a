-- Ordered destinations: the queue of one aggregate's events at one destination. Only its head has a due time.

-- Gives the heads of these queues a due time where they have none. (A head in backoff has one.)
create or replace function holdfast.wake_next(p_destinations uuid[], p_aggregates uuid[]) returns void
language plpgsql volatile security invoker as $$
begin
  update public.outbox o set next_attempt_at = clock_timestamp()
  where o.id = any (array(
      select h.id from unnest(p_destinations, p_aggregates) q(destination_id, aggregate_id)
      cross join lateral (
        select x.id, x.next_attempt_at from public.outbox x
        where x.keyed and x.destination_id = q.destination_id and x.aggregate_id = q.aggregate_id
          and holdfast.is_pending(x)
        order by x.sequence, x.id limit 1) h
      where h.next_attempt_at = 'infinity' order by h.id))
    and o.next_attempt_at = 'infinity'
    and holdfast.is_pending(o);
end $$;

-- Wakes the rows behind these in their queues. Returns whether there may be one.
create or replace function holdfast.wake_behind(p_ids bigint[]) returns boolean
language plpgsql volatile security invoker as $$
declare
  v_destinations uuid[];
  v_aggregates uuid[];
begin
  select array_agg(q.destination_id), array_agg(q.aggregate_id) into v_destinations, v_aggregates
  from (select distinct o.destination_id, o.aggregate_id from public.outbox o where o.id = any (p_ids) and o.keyed) q;
  if v_destinations is not null then
    perform holdfast.wake_next(v_destinations, v_aggregates);
  end if;
  return v_destinations is not null;
end $$;

-- Makes the head of a queue due, and the rows behind it wait.
create or replace function holdfast.head_only(p_destination uuid, p_aggregate uuid) returns void
language plpgsql volatile security invoker as $$
declare
  v_head bigint;
begin
  select o.id into v_head from public.outbox o
  where o.keyed and o.destination_id = p_destination and o.aggregate_id = p_aggregate
    and holdfast.is_pending(o)
  order by o.sequence, o.id limit 1;
  update public.outbox o
  set next_attempt_at = case when o.id = v_head then clock_timestamp() else 'infinity' end
  where o.keyed and o.destination_id = p_destination and o.aggregate_id = p_aggregate
    and holdfast.is_pending(o)
    and o.lease_token is null and (o.id = v_head) <> isfinite(o.next_attempt_at);
end $$;

-- Makes the pending rows of a destination that becomes ordered wait in their queues, or due again when it no longer is.
create or replace function holdfast.requeue_in_order(p_destination uuid, p_ordered boolean) returns void
language plpgsql volatile security invoker as $$
begin
  update public.outbox o set keyed = p_ordered, next_attempt_at = case
      when not p_ordered and not isfinite(o.next_attempt_at) then clock_timestamp()
      when p_ordered and o.lease_token is null and q.place > 1 then 'infinity'
      else o.next_attempt_at end
  from (select x.id, row_number() over (partition by x.aggregate_id order by x.sequence, x.id) as place
        from public.outbox x
        where x.destination_id = p_destination
          and holdfast.is_pending(x)
        order by x.id) q
  where o.id = q.id and holdfast.is_pending(o);
end $$;

-- Wakes heads that nobody woke: their event was written while the one before was settled, and neither transaction saw the other.
-- {"destinationId","aggregateId","steps"}: visits up to `steps` queues after it, and returns the last; null at the end.
create or replace function holdfast.relay_sweep_order(p_call jsonb, out destination_id uuid, out aggregate_id uuid, out woken int)
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_at_destination uuid := p_call ->> 'destinationId';
  v_at_aggregate uuid := p_call ->> 'aggregateId';
  v_destinations uuid[] := '{}';
  v_aggregates uuid[] := '{}';
  v_head record;
begin
  woken := 0;
  for v_step in 1 .. (p_call ->> 'steps')::int loop
    select o.destination_id, o.aggregate_id, o.next_attempt_at into v_head from public.outbox o
    where o.keyed and (o.destination_id, o.aggregate_id) > (v_at_destination, v_at_aggregate)
      and holdfast.is_pending(o)
    order by o.destination_id, o.aggregate_id, o.sequence limit 1;
    v_at_destination := v_head.destination_id;
    v_at_aggregate := v_head.aggregate_id;
    exit when not found;
    if v_head.next_attempt_at = 'infinity' then
      v_destinations := v_destinations || v_head.destination_id;
      v_aggregates := v_aggregates || v_head.aggregate_id;
      woken := woken + 1;
    end if;
  end loop;
  destination_id := v_at_destination;
  aggregate_id := v_at_aggregate;
  if woken > 0 then
    perform holdfast.wake_next(v_destinations, v_aggregates);
  end if;
end $$;
