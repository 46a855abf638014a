-- Destinations, as people set them up. Only destination_secrets answers with a secret.

-- The version of Shopify's API in the address of a shop. A version lives for a year, so it ends a year after its month; three months
-- before is the time for the next one. Null: none is named.
create or replace function holdfast.api_version(p_url text, p_today date) returns text
language sql stable as $$
  select format('{"version":"%s","endsOn":"%s","endsSoon":%s}', v.version, v.ends_on, (p_today >= v.ends_on - interval '3 months')::text)
  from (select m.version, (to_date(m.version, 'YYYY-MM') + interval '1 year')::date as ends_on
        from substring(p_url from '/admin/api/(\d{4}-(?:01|04|07|10))/') m(version) where m.version is not null) v
$$;

create or replace function holdfast.destination_document(p_tenant uuid, p_id uuid) returns text
language sql stable as $$
  select format('{"id":"%s","name":%s,"kind":"%s","url":%s,"eventTypes":%s,"customerId":%s,"ordered":%s,"maxAttempts":%s,'
                '"maxPerSecond":%s,"locationId":%s,"apiVersion":%s,"state":"%s","rearranging":%s,"createdAt":"%s"}',
    d.id, holdfast.quote(d.name), d.kind, holdfast.quote(d.url), to_json(d.event_types)::text,
    holdfast.quote(d.customer_id::text), d.ordered::text, d.max_attempts, coalesce(d.max_per_second::text, 'null'),
    holdfast.quote(d.location_id),
    coalesce(case d.kind when 'shopify_inventory' then holdfast.api_version(d.url, (now() at time zone 'UTC')::date) end, 'null'),
    d.state,
    (select count(*) > 0 from public.rearrangement r where r.destination_id = d.id)::text, holdfast.rfc3339(d.created_at))
  from public.destination d where d.tenant_id = p_tenant and d.id = p_id
$$;

create or replace function holdfast.page_of_destination(p_tenant uuid, p_read jsonb) returns table (id text, document text)
language plpgsql stable security invoker as $$
declare
  v_after constant uuid := p_read ->> 'after';
  v_after_at constant timestamptz := (
    select d.created_at from public.destination d where d.tenant_id = p_tenant and d.id = v_after);
begin
  return query
  select d.id::text, holdfast.destination_document(p_tenant, d.id) from public.destination d
  where d.tenant_id = p_tenant and (v_after is null or (d.created_at, d.id) < (v_after_at, v_after))
  order by d.created_at desc, d.id desc limit (p_read ->> 'limit')::int + 1;
end $$;

-- Refuses what does not fit a destination of this kind, or returns null. urlRefused: why the URL may not be called; sendersAllowed:
-- whether a mail's sender must be one that the operator has allowed.
create or replace function holdfast.refuse_destination(p_tenant uuid, p_kind text, p_call jsonb) returns holdfast.outcome
language plpgsql stable security invoker as $$
declare
  v_fields constant jsonb := p_call -> 'fields';
begin
  if p_call ->> 'urlRefused' is not null and p_kind not in ('eventbridge', 'sqs') then
    return holdfast.does_not_fit('/url', p_call ->> 'urlRefused');
  elsif v_fields ->> 'customerId' is not null and not exists (
       select from public.customer c where c.tenant_id = p_tenant and c.id = (v_fields ->> 'customerId')::uuid) then
    return holdfast.refusal(422, 'unknown_customer', 'There is no customer with this id.');
  elsif p_kind = 'shopify_inventory' and (v_fields ->> 'ordered')::boolean then
    return holdfast.refusal(422, 'destination_kind', 'An inventory push sets the whole quantity; pushes need no order.');
  elsif p_kind not in ('shopify_inventory', 'webhook') and p_call ->> 'secret' is not null
    or p_kind = 'webhook' and p_call ->> 'secret' is not null and not v_fields ? 'kind' then
    return holdfast.refusal(422, 'destination_kind', 'Only a shop takes an access token.');
  elsif p_kind <> 'email' and v_fields ->> 'url' like 'mailto:%' then
    return holdfast.refusal(422, 'destination_kind', 'Only an email destination has a mail address.');
  elsif p_kind <> 'eventbridge' and v_fields ->> 'url' like 'arn:%' then
    return holdfast.refusal(422, 'destination_kind', 'Only an eventbridge destination has an ARN.');
  elsif p_kind = 'eventbridge' and (v_fields ->> 'ordered')::boolean then
    return holdfast.refusal(422, 'destination_kind', 'EventBridge keeps no order.');
  elsif v_fields ? 'url'
        and (p_kind in ('eventbridge', 'sqs') or p_kind = 'email' and (p_call ->> 'sendersAllowed')::boolean)
        and not holdfast.is_allowed_target(p_tenant, p_kind, v_fields ->> 'url') then
    return holdfast.does_not_fit('/url', 'must be one that the operator has allowed');
  end if;
  return null;
end $$;

-- {"tenantId","userId","actor","id","fields","secret","urlRefused"}; secret: what signs the events, or the shop's access token, sealed
-- for this id.
create or replace function holdfast.create_destination(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_fields constant jsonb := p_call -> 'fields';
  v_secret constant text := p_call ->> 'secret';
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_id constant uuid := coalesce((p_call ->> 'id')::uuid, gen_random_uuid());
  v_refused holdfast.outcome;
begin
  v_refused := holdfast.refuse_destination(v_tenant, v_fields ->> 'kind', p_call);
  if v_refused.status is not null then
    return v_refused;
  end if;
  insert into public.destination (tenant_id, id, name, kind, url, event_types, customer_id, ordered, max_attempts,
    max_per_second, location_id)
  values (v_tenant, v_id, v_fields ->> 'name', v_fields ->> 'kind', v_fields ->> 'url',
    array(select jsonb_array_elements_text(v_fields -> 'eventTypes')), (v_fields ->> 'customerId')::uuid,
    coalesce((v_fields ->> 'ordered')::boolean, false), coalesce((v_fields ->> 'maxAttempts')::int, 12),
    (v_fields ->> 'maxPerSecond')::int, v_fields ->> 'locationId');
  if v_secret is not null then
    insert into public.destination_secret (tenant_id, destination_id, secret) values (v_tenant, v_id, v_secret);
  end if;
  perform holdfast.audit(p_call, 'destination_created', null, v_id, v_fields);
  return holdfast.success(201, holdfast.destination_document(v_tenant, v_id));
end $$;

-- {"tenantId","userId","actor","id","fields","secret","urlRefused"}: changes the members that are sent. Setting it active, or
-- giving it another address, makes its events due at once. (That it recovered is told when it has answered.)
create or replace function holdfast.change_destination(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_id constant uuid := p_call ->> 'id';
  v_fields constant jsonb := p_call -> 'fields';
  v_secret constant text := p_call ->> 'secret';
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_old public.destination;
  v_new public.destination;
  v_refused holdfast.outcome;
  -- A small backlog; the relay does the rest.
  v_rearranged_at_once constant int := 1000;
begin
  select * into v_old from public.destination d where d.tenant_id = v_tenant and d.id = v_id for no key update;
  if not found then
    return holdfast.refusal(404, 'not_found', 'There is nothing at this address.');
  end if;
  v_refused := holdfast.refuse_destination(v_tenant, v_old.kind, p_call);
  if v_refused.status is not null then
    return v_refused;
  end if;
  if v_old.kind = 'sqs' and coalesce((v_fields ->> 'ordered')::boolean, v_old.ordered)
     and coalesce(v_fields ->> 'url', v_old.url) not like '%.fifo' then
    return holdfast.refusal(422, 'destination_kind', 'Only a FIFO queue keeps an order.');
  end if;
  update public.destination d set
    name = coalesce(v_fields ->> 'name', d.name), url = coalesce(v_fields ->> 'url', d.url),
    event_types = case when v_fields ? 'eventTypes'
      then array(select jsonb_array_elements_text(v_fields -> 'eventTypes')) else d.event_types end,
    customer_id = case when v_fields ? 'customerId' then (v_fields ->> 'customerId')::uuid else d.customer_id end,
    ordered = coalesce((v_fields ->> 'ordered')::boolean, d.ordered),
    max_attempts = coalesce((v_fields ->> 'maxAttempts')::int, d.max_attempts),
    max_per_second = case when v_fields ? 'maxPerSecond' then (v_fields ->> 'maxPerSecond')::int
                     else d.max_per_second end,
    location_id = case when v_fields ? 'locationId' then v_fields ->> 'locationId' else d.location_id end,
    state = coalesce(v_fields ->> 'state', d.state)
  where d.tenant_id = v_tenant and d.id = v_id
  returning * into v_new;
  if v_secret is not null then
    delete from public.destination_secret s where s.tenant_id = v_tenant and s.destination_id = v_id;
    insert into public.destination_secret (tenant_id, destination_id, secret) values (v_tenant, v_id, v_secret);
  end if;
  if v_new.ordered <> v_old.ordered then
    perform holdfast.begin_rearrangement(v_tenant, v_id, v_rearranged_at_once);
  end if;
  if v_fields ->> 'state' = 'active' or v_new.url <> v_old.url then
    perform holdfast.try_at_once(v_id, v_old.state = 'disabled');
  end if;
  perform holdfast.audit(p_call, 'destination_changed', null, v_id, v_fields);
  if v_new.state <> v_old.state and 'disabled' in (v_new.state, v_old.state) then
    perform holdfast.tell_of_destination(v_id,
      case v_new.state when 'disabled' then 'destination.disabled' else 'destination.recovered' end, 'person',
      format('set %s by a person', v_new.state));
  end if;
  return holdfast.success(200, holdfast.destination_document(v_tenant, v_id));
end $$;

-- Makes events in backoff at a destination due now and, if its breaker is open, a probe; for one that was disabled, closes the
-- breaker. Rows that are being claimed are skipped, as are those beyond v_max_rows: they wait for their backoff.
create or replace function holdfast.try_at_once(p_destination uuid, p_was_disabled boolean) returns void
language plpgsql volatile security invoker as $$
declare
  -- Some seconds' work.
  v_max_rows constant int := 20000;
begin
  update public.destination_health h set failures = 0, probing = false,
    opened = case when p_was_disabled then 0 else least(h.opened, 1) end,
    open_until = case when not p_was_disabled and h.open_until is not null then clock_timestamp() end
  where h.destination_id = p_destination;
  update public.outbox o set next_attempt_at = clock_timestamp()
  where o.id = any (array(
    select x.id from public.outbox x
    where x.destination_id = p_destination and x.lease_token is null
      and x.next_attempt_at > clock_timestamp() and x.next_attempt_at < 'infinity'
      and holdfast.is_pending(x)
    order by x.next_attempt_at, x.id limit v_max_rows for no key update skip locked));
end $$;

-- The secrets that sign now, newest first, as they are stored: sealed.
create or replace function holdfast.destination_secrets(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_id constant uuid := p_read ->> 'id';
  v_secrets text;
  v_newest text;
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
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
    return holdfast.decided('not_found');
  end if;
  perform holdfast.audit(p_read, 'secret_read', null, v_id, '{}');
  return holdfast.document_answer(format('{"secret":%s,"secrets":[%s]}', holdfast.quote(v_newest), v_secrets));
end $$;

-- {"tenantId","userId","actor","id","secret","overlapHours"}: adds a secret; the one before signs for overlapHours more, and any
-- other ends. Those that have ended are deleted.
create or replace function holdfast.rotate_secret(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_id constant uuid := p_call ->> 'id';
  v_secret constant text := p_call ->> 'secret';
  v_overlap_hours constant int := p_call ->> 'overlapHours';
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_now constant timestamptz := clock_timestamp();
  v_kind text;
  v_retires constant timestamptz := v_now + make_interval(hours => v_overlap_hours);
begin
  select d.kind into v_kind from public.destination d where d.tenant_id = v_tenant and d.id = v_id for no key update;
  if not found then
    return holdfast.refusal(404, 'not_found', 'There is nothing at this address.');
  elsif v_kind <> 'webhook' then
    return holdfast.refusal(422, 'destination_kind', 'Only a webhook has signing secrets.');
  end if;
  delete from public.destination_secret s
  where s.tenant_id = v_tenant and s.destination_id = v_id and (s.retires_at is not null or v_overlap_hours = 0);
  update public.destination_secret s set retires_at = v_retires where s.tenant_id = v_tenant and s.destination_id = v_id;
  insert into public.destination_secret (tenant_id, destination_id, secret, created_at)
  values (v_tenant, v_id, v_secret, v_now);
  perform holdfast.audit(p_call, 'secret_rotated', null, v_id, jsonb_build_object('overlapHours', v_overlap_hours));
  return holdfast.success(200, format('{"id":"%s","previousRetiresAt":"%s"}', v_id, holdfast.rfc3339(v_retires)));
end $$;

-- {"tenantId","userId","actor","id","reason"}: deletes a destination. What is pending there is discarded: a small backlog here, the
-- rest by the relay, which does not send it any more. Dead letters and what was delivered stay to be read.
create or replace function holdfast.delete_destination(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_id constant uuid := p_call ->> 'id';
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_reason constant text := coalesce(p_call ->> 'reason', 'the destination was deleted');
  v_discarded_at_once constant int := 1000;
  v_old public.destination;
  v_discarded int;
begin
  select * into v_old from public.destination d where d.tenant_id = v_tenant and d.id = v_id for update;
  if not found then
    return holdfast.refusal(404, 'not_found', 'There is nothing at this address.');
  end if;
  v_discarded := holdfast.discard_rest(v_id, v_reason, v_discarded_at_once);
  insert into public.destination_end (tenant_id, destination_id, reason) values (v_tenant, v_id, v_reason);
  delete from public.destination_secret s where s.tenant_id = v_tenant and s.destination_id = v_id;
  delete from public.shopify_inventory_item i where i.tenant_id = v_tenant and i.destination_id = v_id;
  delete from public.rearrangement r where r.destination_id = v_id;
  delete from public.destination_health h where h.destination_id = v_id;
  delete from public.destination d where d.tenant_id = v_tenant and d.id = v_id;
  perform holdfast.audit(p_call, 'destination_deleted', null, v_id,
    jsonb_build_object('name', v_old.name, 'kind', v_old.kind, 'url', v_old.url, 'reason', v_reason));
  return holdfast.success(200, format('{"id":"%s","discarded":%s,"more":%s}', v_id, v_discarded,
                                      (v_discarded = v_discarded_at_once)::text));
end $$;

-- {"tenantId","userId","actor","id"}: sends a test event to this destination alone, whatever it subscribes to; of mail, to the user
-- who asks.
create or replace function holdfast.test_destination(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_id constant uuid := p_call ->> 'id';
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_kind text;
  v_name text;
  v_row public.outbox;
begin
  select d.kind, d.name into v_kind, v_name from public.destination d where d.tenant_id = v_tenant and d.id = v_id;
  if not found then
    return holdfast.refusal(404, 'not_found', 'There is nothing at this address.');
  end if;
  perform holdfast.emit_destination_event(v_id, 'destination.test',
    format('{"destinationId":"%s","name":%s%s}', v_id, holdfast.quote(v_name),
           case v_kind when 'email' then format(',"userId":%s', holdfast.quote(p_call ->> 'userId')) end), v_id, null);
  select * into v_row from public.outbox o
  where o.tenant_id = v_tenant and o.destination_id = v_id and o.event_type = 'destination.test'
  order by o.created_at desc, o.id desc limit 1;
  perform holdfast.audit(p_call, 'destination_tested', v_row.id, v_id, '{}');
  return holdfast.success(200, format('{"outboxId":"%s","eventId":"%s"}', v_row.id, v_row.event_id));
end $$;
