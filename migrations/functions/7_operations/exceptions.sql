-- What a person must look at: exceptions of the inbox, and shortfalls.

-- The first p_max bytes of anything as text, cut between characters; one byte more shows whether there is a cut. What is not
-- UTF-8, and C1 controls, become U+FFFD byte by byte; other controls but tab and line feed become their pictures. It never fails,
-- as convert_from does at the first wrong byte: that is only given what is UTF-8 by its octal digits in the escape format.
create or replace function holdfast.readable(p_bytes bytea, p_max int) returns text
language sql stable strict parallel safe as $$
  select translate(coalesce(string_agg(
      case when octet_length(d.part) > 1 or get_byte(d.part, 0) between 1 and 127 then convert_from(d.part, 'UTF8')
           when get_byte(d.part, 0) = 0 then '␀' else U&'\FFFD' end, '' order by m.n), ''),
    E'\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0d\x0e\x0f\x10\x11'
    '\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f',
    '␁␂␃␄␅␆␇␈␋␌␍␎␏␐␑␒␓␔␕␖␗␘␙␚␛␜␝␞␟␡')
  from regexp_matches(
    encode(substring(p_bytes from 1 for p_max - case
        when octet_length(p_bytes) <= p_max or get_byte(p_bytes, p_max) & 192 <> 128 then 0
        when get_byte(p_bytes, p_max - 1) & 192 <> 128 then 1
        when get_byte(p_bytes, p_max - 2) & 192 <> 128 then 2
        else 3 end), 'escape'),
    -- ASCII, a backslash, and UTF-8 of two, three and four bytes; or else one byte.
    '(?:[^\\]|\\\\|\\(?:302\\2[4-7]|30[3-7]\\2[0-7]|3[123][0-7]\\2[0-7])[0-7]'
    '|\\(?:340\\2[4-7]|34[1-7]\\2[0-7]|35[0-467]\\2[0-7]|355\\2[0-3])[0-7]\\2[0-7]{2}'
    '|\\(?:360\\2[2-7]|36[1-3]\\2[0-7]|364\\2[01])[0-7](?:\\2[0-7]{2}){2})+|\\[0-7]{3}',
    'g') with ordinality as m(found, n)
  cross join lateral decode(m.found[1], 'escape') as d(part)
$$;

create or replace function holdfast.exception_documents(p_tenant uuid, p_ids uuid[]) returns table (ord bigint, document text)
language sql stable security invoker as $$
  select w.ord,
    format('{"id":"%s","provider":%s,"eventId":%s,"topic":%s,"reason":%s,"waitsFor":%s,"attempts":%s,"receivedAt":"%s",',
      e.id, holdfast.quote(e.provider), holdfast.quote(e.event_id), holdfast.quote(e.topic), holdfast.quote(e.reason),
      holdfast.quote(e.waits_for), e.attempts, holdfast.rfc3339(e.received_at))
    || format('"lastTriedAt":"%s","resolvedAt":%s,"resolvedBy":%s,"redactedAt":%s,"sizeBytes":%s,"excerpt":%s}',
      holdfast.rfc3339(e.last_tried_at), holdfast.quote(holdfast.rfc3339(e.resolved_at)), holdfast.quote(e.resolved_by),
      holdfast.quote(holdfast.rfc3339(e.redacted_at)), octet_length(e.body),
      holdfast.quote(holdfast.readable(substring(e.body from 1 for 2001), 2000)))
  from unnest(p_ids) with ordinality as w(id, ord)
  join public.inbox_exception e on e.id = w.id and e.tenant_id = p_tenant
$$;

create or replace function holdfast.shortfall_documents(p_tenant uuid, p_ids uuid[]) returns table (ord bigint, document text)
language sql stable security invoker as $$
  select w.ord,
    format('{"id":"%s","skuId":"%s","code":%s,"qty":%s,"cause":%s,"openedAt":"%s","updatedAt":"%s",',
      s.id, s.sku_id, holdfast.quote(k.code), s.qty, holdfast.quote(s.cause), holdfast.rfc3339(s.opened_at),
      holdfast.rfc3339(s.updated_at))
    || format('"settledAt":%s,"settledBy":%s,"note":%s,"unbooked":%s}', holdfast.quote(holdfast.rfc3339(s.settled_at)),
      holdfast.quote(s.settled_by), holdfast.quote(s.note), s.owed_on_hand + s.owed_on_order)
  from unnest(p_ids) with ordinality as w(id, ord)
  join public.shortfall s on s.tenant_id = p_tenant and s.id = w.id
  join public.sku k on k.tenant_id = p_tenant and k.id = s.sku_id
$$;

-- Filter: state (open or resolved, or null). VOLATILE, since adopt_exceptions writes.
create or replace function holdfast.page_of_inbox_exception(p_tenant uuid, p_read jsonb) returns table (id text, document text)
language plpgsql volatile security invoker set plan_cache_mode = force_custom_plan as $$
declare
  v_limit constant int := p_read ->> 'limit';
  v_after constant uuid := p_read ->> 'after';
  v_after_at constant timestamptz := (
    select e.received_at from public.inbox_exception e where e.tenant_id = p_tenant and e.id = v_after);
  v_state constant text := p_read ->> 'state';
  v_ids uuid[];
begin
  perform holdfast.adopt_exceptions(p_tenant);
  v_ids := array(
    select e.id from public.inbox_exception e
    where e.tenant_id = p_tenant and (v_after is null or (e.received_at, e.id) < (v_after_at, v_after))
      and (v_state is null or (v_state = 'open') = (e.resolved_at is null))
    order by e.received_at desc, e.id desc
    limit v_limit + 1);
  return query select v_ids[d.ord]::text, d.document from holdfast.exception_documents(p_tenant, v_ids) d order by d.ord;
end $$;

-- What a shop sent before it was registered becomes its tenant's.
create or replace function holdfast.adopt_exceptions(p_tenant uuid) returns void
language plpgsql volatile security invoker as $$
begin
  perform set_config('app.inbox_of_nobody', 'on', true);
  update public.inbox_exception e set tenant_id = p_tenant
  where e.tenant_id is null and e.resolved_at is null
    and e.provider in (select 'shopify:' || s.domain from public.shopify_shop s where s.tenant_id = p_tenant);
  perform set_config('app.inbox_of_nobody', '', true);
end $$;

-- Filter: state (open or settled, or null).
create or replace function holdfast.page_of_shortfall(p_tenant uuid, p_read jsonb) returns table (id text, document text)
language plpgsql stable security invoker set plan_cache_mode = force_custom_plan as $$
declare
  v_limit constant int := p_read ->> 'limit';
  v_after constant uuid := p_read ->> 'after';
  v_after_at constant timestamptz := (
    select s.opened_at from public.shortfall s where s.tenant_id = p_tenant and s.id = v_after);
  v_state constant text := p_read ->> 'state';
  v_ids constant uuid[] := array(
    select s.id from public.shortfall s
    where s.tenant_id = p_tenant and (v_after is null or (s.opened_at, s.id) < (v_after_at, v_after))
      and (v_state is null or (v_state = 'open') = (s.settled_at is null))
    order by s.opened_at desc, s.id desc
    limit v_limit + 1);
begin
  return query select v_ids[d.ord]::text, d.document from holdfast.shortfall_documents(p_tenant, v_ids) d order by d.ord;
end $$;

-- {"tenantId","id"}: an open exception, for Rust to read again. No row where there is none; retry_exception then says why.
create or replace function holdfast.exception_to_retry(p_call jsonb)
returns table (provider text, topic text, body bytea)
language sql volatile security invoker as $$
  select e.provider, e.topic, e.body from public.inbox_exception e
  where e.tenant_id = (p_call ->> 'tenantId')::uuid and e.id = (p_call ->> 'id')::uuid and e.resolved_at is null
$$;

-- {"tenantId","id","actor","delivery"}: runs a kept event again. delivery: as of receive (command or fault), read again by the
-- present code. The exception's row is locked last, as in wake_exceptions. A refusal is rolled back with the effect.
create or replace function holdfast.retry_exception(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_exception constant uuid := p_call ->> 'id';
  v_actor constant text := p_call ->> 'actor';
  v_delivery constant jsonb := p_call -> 'delivery';
  v_kept public.inbox_exception;
  v_verdict holdfast.verdict;
begin
  select e.* into v_kept from public.inbox_exception e
  where e.tenant_id = v_tenant and e.id = v_exception;
  if not found then
    return holdfast.refusal(404, 'not_found', 'There is no exception with this id.');
  elsif v_kept.resolved_at is not null then
    return holdfast.refusal(409, 'exception_resolved', 'It has been processed meanwhile; there is nothing left to do.');
  end if;
  v_verdict := holdfast.take_effect(v_tenant, v_kept.provider, v_delivery || '{"retry":true}', v_actor);
  update public.inbox_exception e
  set attempts = e.attempts + 1, last_tried_at = now(), reason = coalesce(v_verdict.reason, e.reason),
      waits_for = v_verdict.waits_for,
      command = case when e.redacted_at is null then coalesce(v_delivery -> 'command', e.command) else e.command end,
      resolved_at = case when v_verdict.reason is null then now() end,
      resolved_by = case when v_verdict.reason is null then v_actor end
  where e.tenant_id = v_tenant and e.id = v_exception and e.resolved_at is null;
  if not found then
    return holdfast.refusal(409, 'exception_resolved', 'It has been processed meanwhile; there is nothing left to do.');
  end if;
  -- The answer is recorded, so it must hold nothing that customers/redact would have to erase.
  return holdfast.success(200, (select jsonb_set(d.document::jsonb, '{excerpt}', 'null')::text
                                from holdfast.exception_documents(v_tenant, array[v_exception]) d));
end $$;

-- {"tenantId","id","actor","note"}: closes a shortfall. Units that are owed stay so until ATS covers them (book_owed).
create or replace function holdfast.settle_shortfall(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_shortfall constant uuid := p_call ->> 'id';
  v_actor constant text := p_call ->> 'actor';
  v_note constant text := p_call ->> 'note';
begin
  update public.shortfall s set settled_at = now(), settled_by = v_actor, note = v_note, updated_at = now()
  where s.tenant_id = v_tenant and s.id = v_shortfall and s.settled_at is null;
  if not found then
    if exists (select from public.shortfall s where s.tenant_id = v_tenant and s.id = v_shortfall) then
      return holdfast.refusal(409, 'shortfall_settled', 'It has been settled already.');
    end if;
    return holdfast.refusal(404, 'not_found', 'There is no shortfall with this id.');
  end if;
  return holdfast.success(200, (select d.document from holdfast.shortfall_documents(v_tenant, array[v_shortfall]) d));
end $$;

-- Erases personal data of one customer (found by id, by orders, or by traces in the bytes), or of all (shop/redact), from a
-- shop's exceptions. What the effect needs stays, in the shape of the body, so that it can still be retried.
create or replace function holdfast.redact_exceptions(p_provider text, p_command jsonb) returns void
language plpgsql volatile security invoker as $$
declare
  v_customer constant text := p_command ->> 'customerId';
  -- An id is matched as a whole: 77 is neither in 1077 nor in 77.50.
  v_id constant text := case when v_customer ~ '^[0-9]+$' then '(^|[^0-9a-zA-Z.])' || v_customer || '($|[^0-9a-zA-Z.])' end;
  v_traces constant text[] := array(
    select lower(encode(convert_to(t.trace, 'UTF8'), 'escape'))
    from jsonb_array_elements_text(p_command -> 'traces') as t(trace));
begin
  perform set_config('app.inbox_of_nobody', 'on', true);
  update public.inbox_exception e
  set body = case when e.command ? 'order' then convert_to(((e.command -> 'order') - 'customer')::text, 'UTF8')
                  when e.command is not null then '{}' else '' end,
      command = (e.command - 'customerId') #- '{order,customer}', redacted_at = now()
  where e.provider = p_provider and e.redacted_at is null
    and (p_command ->> 'do' = 'shop/redact'
         or e.command ->> 'customerId' = v_customer
         or p_command -> 'orderIds' ? (e.command ->> 'orderId')
         or encode(e.body, 'escape') ~ v_id
         or exists (select from unnest(v_traces) as t(trace) where position(t.trace in lower(encode(e.body, 'escape'))) > 0));
  perform set_config('app.inbox_of_nobody', '', true);
end $$;
