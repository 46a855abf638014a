-- The only writer of the outbox: envelope and fan-out, in the transaction of the deed. The caller has taken each
-- event's sequence from its aggregate's own row, under that row's lock.
--
-- One row per destination that subscribes, so that each has its own attempts; siblings share event_id and
-- sequence. No subscriber: one row, owed to nobody, already processed. A destination bound to a customer gets that
-- customer's wholesale_order and invoice events and nothing else.
create or replace function holdfast.emit(p_tenant uuid, p_events holdfast.event[]) returns void
language plpgsql volatile security invoker as $$
declare
  v_now constant timestamptz := clock_timestamp();
begin
  insert into public.outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type,
      payload, created_at, next_attempt_at, processed_at)
  select p_tenant, d.id, e.event_id, e.aggregate_type, e.aggregate_id, e.sequence, e.type,
         format('{"id":"%s","type":"%s","schemaVersion":1,"timestamp":"%s","tenantId":"%s",'
                '"aggregate":{"type":"%s","id":"%s","sequence":%s},"data":%s}',
                e.event_id, e.type, holdfast.rfc3339(v_now), p_tenant,
                e.aggregate_type, e.aggregate_id, e.sequence, e.data),
         v_now, v_now, case when d.id is null then v_now end
  from (select gen_random_uuid() as event_id, x.*
        from unnest(p_events) with ordinality as x offset 0) e -- offset 0: one event_id for all siblings
  left join public.destination d on d.tenant_id = p_tenant
    and (e.type = any (d.event_types) or '*' = any (d.event_types))
    and (d.customer_id is null
         or (e.aggregate_type in ('wholesale_order', 'invoice') and d.customer_id = e.customer_id))
  order by e.ordinality, d.id;
end $$;
