-- A partner's own view of what its destination was owed, and how it asks for it again.

-- The destination that this caller may read, of those it names: an API key's own one, named or not; for a user any of the tenant's.
-- Null: there is none.
create or replace function holdfast.readable_destination(p_call jsonb) returns uuid
language plpgsql stable security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_named constant uuid := p_call ->> 'destination';
  v_own uuid;
begin
  if p_call ->> 'actor' like 'api\_key:%' then
    select k.destination_id into v_own from public.api_key k
    where k.tenant_id = v_tenant and k.id = substr(p_call ->> 'actor', length('api_key:') + 1)::uuid;
    if v_own is null or v_named <> v_own then
      return null;
    end if;
  end if;
  return (select d.id from public.destination d where d.tenant_id = v_tenant and d.id = coalesce(v_own, v_named));
end $$;

-- {"destination","after","limit","look"}: its events of any state, oldest first, each with the document that is sent. What is younger
-- than 30 s waits: an event that commits later may stand before it. Looks at up to `look` of the tenant's rows; next: the last one
-- seen, null at the end.
create or replace function holdfast.read_events(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_limit constant int := p_read ->> 'limit';
  v_look constant int := p_read ->> 'look';
  v_after constant bigint := p_read ->> 'after';
  -- Of a page: below what Lambda carries.
  v_max_bytes constant int := 3500000;
  v_destination uuid;
  v_after_at timestamptz := '-infinity';
  v_row record;
  v_seen int := 0;
  v_bytes int := 0;
  v_last bigint;
  v_next bigint;
  v_items text[] := '{}';
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  v_destination := holdfast.readable_destination(p_read);
  if v_destination is null then
    return holdfast.decided('not_found');
  end if;
  if v_after is not null then
    select o.created_at into v_after_at from public.outbox o where o.tenant_id = v_tenant and o.id = v_after;
    if not found then
      return holdfast.decided('unknown_after');
    end if;
  end if;
  for v_row in
    select o.id, o.destination_id, o.payload, holdfast.outbox_state(o) as state from public.outbox o
    where o.tenant_id = v_tenant and o.created_at < clock_timestamp() - interval '30 s'
      and (o.created_at, o.id) > (v_after_at, coalesce(v_after, 0))
    order by o.created_at, o.id limit v_look + 1
  loop
    if v_seen = v_look or cardinality(v_items) = v_limit or v_bytes > v_max_bytes then
      v_next := v_last;
      exit;
    end if;
    v_seen := v_seen + 1;
    v_last := v_row.id;
    if v_row.destination_id = v_destination then
      v_items := v_items || format('{"id":"%s","state":"%s","envelope":%s}', v_row.id, v_row.state, v_row.payload);
      v_bytes := v_bytes + octet_length(v_row.payload);
    end if;
  end loop;
  return holdfast.document_answer(format('{"items":[%s],"next":%s}', array_to_string(v_items, ','), holdfast.quote(v_next::text)));
end $$;

-- {"destination","after","look","most"} and either {"from","to"} (times; `to` is exclusive) or {"aggregateId","fromSequence",
-- "toSequence"} (both inclusive): sends again what was delivered or died, newest first, in the steps of a requeue by filter.
create or replace function holdfast.replay_events(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_after constant bigint := p_call ->> 'after';
  v_look constant int := p_call ->> 'look';
  v_most constant int := p_call ->> 'most';
  v_aggregate constant uuid := p_call ->> 'aggregateId';
  v_destination constant uuid := holdfast.readable_destination(p_call);
  v_after_at timestamptz := 'infinity';
  v_row record;
  v_seen int := 0;
  v_last bigint;
  v_next bigint;
  v_ids bigint[] := '{}';
begin
  if v_destination is null then
    return holdfast.refusal(404, 'not_found', 'There is nothing at this address.');
  elsif holdfast.unknown_event(v_tenant, p_call ->> 'after') then
    return holdfast.does_not_fit('/after', 'must be the id of an event');
  elsif v_after is not null then
    select o.created_at into v_after_at from public.outbox o where o.tenant_id = v_tenant and o.id = v_after;
  end if;
  for v_row in
    select o.id, o.destination_id, o.aggregate_id, o.sequence, holdfast.outbox_state(o) as state from public.outbox o
    where o.tenant_id = v_tenant and (o.created_at, o.id) < (v_after_at, coalesce(v_after, 0))
      and o.created_at >= coalesce((p_call ->> 'from')::timestamptz, '-infinity')
      and o.created_at < coalesce((p_call ->> 'to')::timestamptz, 'infinity')
    order by o.created_at desc, o.id desc limit v_look + 1
  loop
    if v_seen = v_look or cardinality(v_ids) = v_most then
      v_next := v_last;
      exit;
    end if;
    v_seen := v_seen + 1;
    v_last := v_row.id;
    if v_row.destination_id = v_destination and v_row.state in ('delivered', 'dead')
       and (v_aggregate is null or (v_row.aggregate_id = v_aggregate
            and v_row.sequence between (p_call ->> 'fromSequence')::bigint and (p_call ->> 'toSequence')::bigint)) then
      v_ids := v_ids || v_row.id;
    end if;
  end loop;
  v_ids := array(
    select o.id from public.outbox o
    where o.id = any (v_ids) and o.tenant_id = v_tenant and holdfast.outbox_state(o) in ('delivered', 'dead')
    order by o.id for no key update);
  perform holdfast.back_to_pending(v_ids);
  perform holdfast.audit_rows(p_call, 'replayed', v_ids);
  return holdfast.success(200, format('{"requeued":%s,"next":%s}', cardinality(v_ids), holdfast.quote(v_next::text)));
end $$;
