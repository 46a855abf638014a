-- The only writer of the outbox: envelope and fan-out, in the transaction of the deed. The caller has taken each
-- event's sequence from its aggregate's own row, under that row's lock.
--
-- One row per destination that subscribes, so that each has its own attempts; siblings share event_id and
-- sequence. No subscriber: one row, owed to nobody, already processed. A destination bound to a customer gets that
-- customer's wholesale_order and invoice events and nothing else.
--
-- p_only: owed to that destination, whatever it subscribes to. p_except: not owed to that one, which the event is about.
--
-- At an ordered destination only an aggregate's head has a due time; who stands behind one waits at infinity until
-- the settlement of the one before wakes it. (Should that happen while this transaction is open, neither sees the
-- other: the relay's sweep wakes it.)
create or replace function holdfast.fan_out(p_tenant uuid, p_events holdfast.event[], p_only uuid, p_except uuid)
returns void language plpgsql volatile security invoker as $$
declare
  v_now constant timestamptz := clock_timestamp();
begin
  insert into public.outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type,
      payload, created_at, keyed, next_attempt_at, processed_at)
  select p_tenant, d.id, e.event_id, e.aggregate_type, e.aggregate_id, e.sequence, e.type,
         format('{"id":"%s","type":"%s","schemaVersion":1,"timestamp":"%s","tenantId":"%s",'
                '"aggregate":{"type":"%s","id":"%s","sequence":%s},"data":%s}',
                e.event_id, e.type, holdfast.rfc3339(v_now), p_tenant,
                e.aggregate_type, e.aggregate_id, e.sequence, e.data),
         v_now, coalesce(d.keyed, false),
         case when d.ordered
                and (row_number() over (partition by d.id, e.aggregate_id order by e.ordinality) > 1
                     or exists (select from public.outbox o where o.keyed and o.destination_id = d.id
                  and o.aggregate_id = e.aggregate_id and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null))
              then 'infinity' else v_now end,
         case when d.id is null then v_now end
  from (select gen_random_uuid() as event_id, x.*
        from unnest(p_events) with ordinality as x offset 0) e -- offset 0: one event_id for all siblings
  left join public.destination d on d.tenant_id = p_tenant
    and case when p_only is not null then d.id = p_only
        else d.id is distinct from p_except
             and (e.type = any (d.event_types) or '*' = any (d.event_types))
             and (d.customer_id is null
                  or (e.aggregate_type in ('wholesale_order', 'invoice') and d.customer_id = e.customer_id)) end
  order by e.ordinality, d.id;
end $$;

create or replace function holdfast.emit(p_tenant uuid, p_events holdfast.event[]) returns void
language plpgsql volatile security invoker as $$
begin
  perform holdfast.fan_out(p_tenant, p_events, null, null);
end $$;

-- One event whose aggregate is the tenant; takes the sequence from the tenant's row.
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
