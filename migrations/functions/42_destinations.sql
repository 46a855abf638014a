-- Destinations as people set them up. No answer here holds a secret but destination_secrets.

create or replace function holdfast.destination_document(p_tenant uuid, p_id uuid) returns text
language sql stable as $$
  select format('{"id":"%s","name":%s,"kind":"%s","url":%s,"eventTypes":%s,"customerId":%s,"ordered":%s,"maxAttempts":%s,'
                '"maxPerSecond":%s,"locationId":%s,"state":"%s","createdAt":"%s"}',
    d.id, holdfast.quote(d.name), d.kind, holdfast.quote(d.url), to_json(d.event_types)::text,
    holdfast.quote(d.customer_id::text), d.ordered::text, d.max_attempts, coalesce(d.max_per_second::text, 'null'),
    holdfast.quote(d.location_id), d.state, holdfast.rfc3339(d.created_at))
  from public.destination d where d.tenant_id = p_tenant and d.id = p_id
$$;

-- Newest first: {"limit","after"}.
create or replace function holdfast.list_destinations(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_limit constant int := p_read ->> 'limit';
  v_after constant uuid := p_read ->> 'after';
  v_after_at timestamptz;
  v_ids uuid[];
begin
  if not holdfast.is_user(p_read) then
    return row('unknown_user', null, null, null, null, null)::holdfast.answer;
  end if;
  if v_after is not null then
    select d.created_at into v_after_at from public.destination d where d.tenant_id = v_tenant and d.id = v_after;
    if not found then
      return row('unknown_after', null, null, null, null, null)::holdfast.answer;
    end if;
  end if;
  v_ids := array(select d.id from public.destination d
    where d.tenant_id = v_tenant and (v_after is null or (d.created_at, d.id) < (v_after_at, v_after))
    order by d.created_at desc, d.id desc limit v_limit + 1);
  return holdfast.page(v_ids, v_limit, (
    select string_agg(holdfast.destination_document(v_tenant, x.id), ',' order by x.ord)
    from unnest(v_ids[1:v_limit]) with ordinality x(id, ord)));
end $$;

-- p_fields: the members of the request. p_secret: what events are signed with, or the shop's access token.
create or replace function holdfast.create_destination(p_call jsonb, p_fields jsonb, p_secret text)
returns holdfast.outcome language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_id constant uuid := gen_random_uuid();
begin
  if p_fields ->> 'customerId' is not null and not exists (
       select from public.customer c where c.tenant_id = v_tenant and c.id = (p_fields ->> 'customerId')::uuid) then
    return holdfast.refusal(422, 'unknown_customer', 'There is no customer with this id.');
  end if;
  insert into public.destination (tenant_id, id, name, kind, url, event_types, customer_id, ordered, max_attempts,
    max_per_second, location_id)
  values (v_tenant, v_id, p_fields ->> 'name', p_fields ->> 'kind', p_fields ->> 'url',
    array(select jsonb_array_elements_text(p_fields -> 'eventTypes')), (p_fields ->> 'customerId')::uuid,
    coalesce((p_fields ->> 'ordered')::boolean, false), coalesce((p_fields ->> 'maxAttempts')::int, 12),
    (p_fields ->> 'maxPerSecond')::int, p_fields ->> 'locationId');
  if p_secret is not null then
    insert into public.destination_secret (tenant_id, destination_id, secret) values (v_tenant, v_id, p_secret);
  end if;
  perform holdfast.audit(p_call, 'destination_created', null, v_id, p_fields);
  return row(201, null, null, holdfast.destination_document(v_tenant, v_id), null, null)::holdfast.outcome;
end $$;

-- Tells the tenant's other destinations what became of one. `state` says whether anybody must act: an active one whose
-- breaker is open (cause failing) is probed and comes back by itself, a disabled one (gone, person) does not.
create or replace function holdfast.tell_of_destination(p_destination uuid, p_type text, p_cause text, p_reason text)
returns void language plpgsql volatile security invoker as $$
declare
  v_destination public.destination;
begin
  select * into v_destination from public.destination d where d.id = p_destination;
  perform holdfast.emit_tenant_event(v_destination.tenant_id, p_type,
    format('{"destinationId":"%s","name":%s,"state":"%s","cause":"%s","reason":%s}', p_destination,
           holdfast.quote(v_destination.name), v_destination.state, p_cause, holdfast.quote(p_reason)),
    null, p_destination);
end $$;

-- Changes the members that are there. A person who sets it active, or gives it another address, has it tried again at
-- once: what waited for its next try is due, and where its breaker is open, a probe. (That it recovered is told when it
-- has answered. One that was disabled begins anew.)
create or replace function holdfast.change_destination(p_call jsonb, p_id uuid, p_fields jsonb, p_secret text)
returns holdfast.outcome language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_old public.destination;
  v_new public.destination;
begin
  select * into v_old from public.destination d where d.tenant_id = v_tenant and d.id = p_id for no key update;
  if not found then
    return holdfast.refusal(404, 'not_found', 'There is nothing at this address.');
  elsif p_fields ->> 'customerId' is not null and not exists (
       select from public.customer c where c.tenant_id = v_tenant and c.id = (p_fields ->> 'customerId')::uuid) then
    return holdfast.refusal(422, 'unknown_customer', 'There is no customer with this id.');
  elsif v_old.kind = 'shopify_inventory' and (p_fields ->> 'ordered')::boolean then
    return holdfast.refusal(422, 'destination_kind', 'Pushes of inventory are set absolutely; they have no order.');
  elsif v_old.kind <> 'shopify_inventory' and p_secret is not null then
    return holdfast.refusal(422, 'destination_kind', 'Only a shop takes an access token.');
  elsif v_old.kind <> 'email' and p_fields ->> 'url' like 'mailto:%' then
    return holdfast.refusal(422, 'destination_kind', 'Only an email destination has a mail address.');
  end if;
  update public.destination d set
    name = coalesce(p_fields ->> 'name', d.name), url = coalesce(p_fields ->> 'url', d.url),
    event_types = case when p_fields ? 'eventTypes'
      then array(select jsonb_array_elements_text(p_fields -> 'eventTypes')) else d.event_types end,
    customer_id = case when p_fields ? 'customerId' then (p_fields ->> 'customerId')::uuid else d.customer_id end,
    ordered = coalesce((p_fields ->> 'ordered')::boolean, d.ordered),
    max_attempts = coalesce((p_fields ->> 'maxAttempts')::int, d.max_attempts),
    max_per_second = case when p_fields ? 'maxPerSecond' then (p_fields ->> 'maxPerSecond')::int else d.max_per_second end,
    location_id = case when p_fields ? 'locationId' then p_fields ->> 'locationId' else d.location_id end,
    state = coalesce(p_fields ->> 'state', d.state)
  where d.tenant_id = v_tenant and d.id = p_id
  returning * into v_new;
  if p_secret is not null then
    delete from public.destination_secret s where s.tenant_id = v_tenant and s.destination_id = p_id;
    insert into public.destination_secret (tenant_id, destination_id, secret) values (v_tenant, p_id, p_secret);
  end if;
  if v_new.ordered <> v_old.ordered then
    perform holdfast.requeue_in_order(p_id, v_new.ordered);
  end if;
  if p_fields ->> 'state' = 'active' or v_new.url <> v_old.url then
    update public.destination_health h set failures = 0, probing = false,
      opened = case when v_old.state = 'disabled' then 0 else least(h.opened, 1) end,
      open_until = case when v_old.state <> 'disabled' and h.open_until is not null then clock_timestamp() end
    where h.destination_id = p_id;
    update public.outbox o set next_attempt_at = clock_timestamp()
    where o.id = any (array(
      select x.id from public.outbox x
      where x.destination_id = p_id and x.lease_token is null
        and x.next_attempt_at > clock_timestamp() and x.next_attempt_at < 'infinity'
        and x.processed_at is null and x.dead_lettered_at is null and x.discarded_at is null
      order by x.next_attempt_at, x.id limit 20000 for no key update skip locked));
  end if;
  perform holdfast.audit(p_call, 'destination_changed', null, p_id, p_fields);
  if v_new.state <> v_old.state and 'disabled' in (v_new.state, v_old.state) then
    perform holdfast.tell_of_destination(p_id,
      case v_new.state when 'disabled' then 'destination.disabled' else 'destination.recovered' end, 'person',
      format('set %s by a person', v_new.state));
  end if;
  return row(200, null, null, holdfast.destination_document(v_tenant, p_id), null, null)::holdfast.outcome;
end $$;

-- What is pending when a destination becomes ordered, or is no longer.
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
          and x.processed_at is null and x.dead_lettered_at is null and x.discarded_at is null
        order by x.id) q
  where o.id = q.id and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null;
end $$;

-- The live signing secrets, newest first.
create or replace function holdfast.destination_secrets(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_id constant uuid := p_read ->> 'id';
  v_secrets text;
  v_newest text;
begin
  if not holdfast.is_user(p_read) then
    return row('unknown_user', null, null, null, null, null)::holdfast.answer;
  end if;
  select (array_agg(s.secret order by s.created_at desc, s.id))[1],
         string_agg(format('{"secret":%s,"createdAt":"%s","retiresAt":%s}', holdfast.quote(s.secret),
           holdfast.rfc3339(s.created_at), holdfast.quote(holdfast.rfc3339(s.retires_at))), ','
           order by s.created_at desc, s.id)
  into v_newest, v_secrets
  from public.destination_secret s
  join public.destination d on d.tenant_id = v_tenant and d.id = s.destination_id and d.kind = 'webhook'
  where s.tenant_id = v_tenant and s.destination_id = v_id
    and (s.retires_at is null or s.retires_at > clock_timestamp());
  if v_secrets is null then
    return row('not_found', null, null, null, null, null)::holdfast.answer;
  end if;
  perform holdfast.audit(p_read, 'secret_read', null, v_id, '{}');
  return row('answer', 200, convert_to(format('{"secret":%s,"secrets":[%s]}', holdfast.quote(v_newest), v_secrets),
    'UTF8'), 'application/json', null, null)::holdfast.answer;
end $$;

-- A new secret; the one before goes on signing for p_overlap_hours, older ones end now.
create or replace function holdfast.rotate_secret(p_call jsonb, p_id uuid, p_secret text, p_overlap_hours int)
returns holdfast.outcome language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_now constant timestamptz := clock_timestamp();
  v_kind text;
  v_retires constant timestamptz := v_now + make_interval(hours => p_overlap_hours);
begin
  select d.kind into v_kind from public.destination d where d.tenant_id = v_tenant and d.id = p_id for no key update;
  if not found then
    return holdfast.refusal(404, 'not_found', 'There is nothing at this address.');
  elsif v_kind <> 'webhook' then
    return holdfast.refusal(422, 'destination_kind', 'Only what is sent to a webhook is signed.');
  end if;
  update public.destination_secret s
  set retires_at = case when s.retires_at is null then v_retires else v_now end
  where s.tenant_id = v_tenant and s.destination_id = p_id and (s.retires_at is null or s.retires_at > v_now);
  insert into public.destination_secret (tenant_id, destination_id, secret, created_at)
  values (v_tenant, p_id, p_secret, v_now);
  perform holdfast.audit(p_call, 'secret_rotated', null, p_id, '{}');
  return row(200, null, null, format('{"id":"%s","previousRetiresAt":"%s"}', p_id, holdfast.rfc3339(v_retires)),
    null, null)::holdfast.outcome;
end $$;

-- An event for this destination alone, whatever it subscribes to.
create or replace function holdfast.test_destination(p_call jsonb, p_id uuid) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_kind text;
  v_name text;
  v_row public.outbox;
begin
  select d.kind, d.name into v_kind, v_name from public.destination d where d.tenant_id = v_tenant and d.id = p_id;
  if not found then
    return holdfast.refusal(404, 'not_found', 'There is nothing at this address.');
  elsif v_kind <> 'webhook' then
    return holdfast.refusal(422, 'destination_kind', 'Only a webhook can be sent a test event.');
  end if;
  perform holdfast.emit_tenant_event(v_tenant, 'destination.test',
    format('{"destinationId":"%s","name":%s}', p_id, holdfast.quote(v_name)), p_id, null);
  select * into v_row from public.outbox o
  where o.tenant_id = v_tenant and o.destination_id = p_id and o.event_type = 'destination.test'
  order by o.created_at desc, o.id desc limit 1;
  perform holdfast.audit(p_call, 'destination_tested', v_row.id, p_id, '{}');
  return row(200, null, null, format('{"outboxId":"%s","eventId":"%s"}', v_row.id, v_row.event_id), null, null
    )::holdfast.outcome;
end $$;
