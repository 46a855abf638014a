-- The only writer of outbox rows: envelope and fan-out, in the transaction of the operation. The caller has taken each event's
-- sequence from its aggregate's row, under its lock. Each subscribed destination gets a row with its own attempts, of the same
-- event_id and sequence; one that is bound to a customer gets only that customer's wholesale_order and invoice events. p_only:
-- that destination alone, whatever it subscribes to. p_except: all but that one.
--
-- At an ordered destination only the head of an aggregate's queue has a due time; a row behind it waits at infinity until the one
-- before is settled. If that happens beside this transaction, neither sees the other: relay_sweep_order wakes the row.
create or replace function holdfast.fan_out(p_tenant uuid, p_events holdfast.event[], p_only uuid, p_except uuid)
returns void language plpgsql volatile security invoker as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_timestamp constant text := holdfast.rfc3339(v_now);
begin
  insert into public.outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type,
      payload, created_at, keyed, next_attempt_at, processed_at)
  select p_tenant, d.id, e.event_id, (e.it).aggregate_type, (e.it).aggregate_id, (e.it).sequence, (e.it).type,
         format('{"id":"%s","type":"%s","schemaVersion":1,"timestamp":"%s","tenantId":"%s",'
                '"aggregate":{"type":"%s","id":"%s","sequence":%s},"data":%s}',
                e.event_id, (e.it).type, v_timestamp, p_tenant,
                (e.it).aggregate_type, (e.it).aggregate_id, (e.it).sequence, (e.it).data),
         v_now, coalesce(d.keyed, false),
         case when d.ordered and holdfast.has_queue(d.id, (e.it).aggregate_id) then 'infinity' else v_now end,
         case when d.id is null then v_now end
  -- Unnested in the target list, which is cheaper than in FROM. offset 0: one event_id for all rows of an event.
  from (select gen_random_uuid() as event_id, unnest(p_events) as it offset 0) e
  -- No clause of this join can be hashed or merged: it is a loop over the events, so rows are made and numbered in their order.
  left join public.destination d on d.tenant_id = p_tenant
    and case when p_only is not null then d.id = p_only
        else d.id is distinct from p_except
             and ((e.it).type = any (d.event_types) or '*' = any (d.event_types))
             and (d.customer_id is null
                  or ((e.it).aggregate_type in ('wholesale_order', 'invoice') and d.customer_id = (e.it).customer_id)) end;
end $$;

-- Whether an event of this aggregate is pending at that destination; the rows that the calling statement has inserted so far count,
-- which only a VOLATILE function sees. One look-up by key for each event of an ordered destination: as an `exists` in the INSERT it
-- became a hash of all tenants' queues where the statistics called these short.
create or replace function holdfast.has_queue(p_destination uuid, p_aggregate uuid) returns boolean
language plpgsql volatile security invoker as $$
begin
  perform from public.outbox o
  where o.keyed and o.destination_id = p_destination and o.aggregate_id = p_aggregate and holdfast.is_pending(o) limit 1;
  return found;
end $$;

create or replace function holdfast.emit(p_tenant uuid, p_events holdfast.event[]) returns void
language plpgsql volatile security invoker as $$
begin
  perform holdfast.fan_out(p_tenant, p_events, null, null);
end $$;

-- One event whose aggregate is the tenant; counts its sequence in the tenant's row.
create or replace function holdfast.emit_tenant_event(p_tenant uuid, p_type text, p_data text, p_only uuid,
  p_except uuid) returns void language plpgsql volatile security invoker as $$
declare
  v_sequence bigint;
begin
  update public.tenant t set event_sequence = event_sequence + 1 where t.id = p_tenant
  returning t.event_sequence into v_sequence;
  perform holdfast.fan_out(p_tenant,
    array[row(p_type, 'tenant', p_tenant, v_sequence, null, p_data)::holdfast.event], p_only, p_except);
end $$;
