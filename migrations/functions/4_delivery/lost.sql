-- Lost rows: their lease ran out. Their relay died or froze, perhaps because of one of them, so they are claimed one by one.

-- {"troubled":[…],"lease"}: claims the lost row that is due first, from a destination not in `troubled` if there is one. At a
-- shop the lost rows of its SKU come with it, as one push.
create or replace function holdfast.relay_claim_lost(p_call jsonb)
returns table (id bigint, tenant_id uuid, destination_id uuid, kind text, aggregate_id uuid, attempts int, payload text,
  url text, secrets text[], location_id text)
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := clock_timestamp();
  v_troubled constant uuid[] := array(select jsonb_array_elements_text(p_call -> 'troubled'));
  v_lost record;
  v_ids bigint[];
  -- As in relay_take.
  v_max_rows constant int := 1000;
begin
  select o.id, o.destination_id, o.aggregate_id, d.kind into v_lost
  from public.outbox o join public.destination d on d.id = o.destination_id
  left join public.destination_health h on h.destination_id = d.id
  where o.lease_token is not null and o.leased_until <= v_now and o.next_attempt_at <= v_now
    and holdfast.is_pending(o)
    and d.state = 'active' and o.attempts < d.max_attempts
    and (h.open_until is null or h.open_until <= v_now)
  order by o.destination_id = any (v_troubled), o.next_attempt_at, o.id limit 1
  for update of o skip locked;
  if not found then
    return;
  end if;
  v_ids := array[v_lost.id];
  if v_lost.kind = 'shopify_inventory' then
    v_ids := holdfast.relay_rows_of_sku(v_lost.destination_id, v_lost.aggregate_id, v_max_rows, v_now, true);
  end if;
  return query select l.* from holdfast.relay_lease(v_ids, p_call -> 'lease') l;
end $$;

-- {}: makes lost rows without an attempt left dead letters, up to 100 at a time, and tells whether another lost row is due.
create or replace function holdfast.relay_sweep_lost(p_call jsonb, out dead_lettered int, out lost_due boolean)
language plpgsql volatile security invoker as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_ids bigint[];
begin
  v_ids := array(
    select x.id from public.outbox x join public.destination d on d.id = x.destination_id
    where x.lease_token is not null and x.leased_until <= v_now and x.attempts >= d.max_attempts
      and holdfast.is_pending(x)
    order by x.id limit 100 for update of x skip locked);
  update public.outbox o set dead_lettered_at = v_now, lease_token = null, leased_until = null,
    last_error = format('The relay did not survive this event: attempt %s ended without a result, and it was the last.',
      o.attempts)
  where o.id = any (v_ids);
  get diagnostics dead_lettered = row_count;
  if dead_lettered > 0 then
    perform holdfast.wake_behind(v_ids);
  end if;
  lost_due := exists (
    select from public.outbox o join public.destination d on d.id = o.destination_id
    left join public.destination_health h on h.destination_id = d.id
    where o.lease_token is not null and o.leased_until <= v_now and o.next_attempt_at <= v_now
      and holdfast.is_pending(o)
      and d.state = 'active' and o.attempts < d.max_attempts
      and (h.open_until is null or h.open_until <= v_now));
end $$;
