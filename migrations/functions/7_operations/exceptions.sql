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
    || format('"lastTriedAt":"%s","resolvedAt":%s,"resolvedBy":%s,"dismissReason":%s,"redactedAt":%s,"bodyDeletedAt":%s,',
      holdfast.rfc3339(e.last_tried_at), holdfast.quote(holdfast.rfc3339(e.resolved_at)), holdfast.quote(e.resolved_by),
      holdfast.quote(e.dismiss_reason), holdfast.quote(holdfast.rfc3339(e.redacted_at)),
      holdfast.quote(holdfast.rfc3339(e.body_deleted_at)))
    || format('"sizeBytes":%s,"excerpt":%s}', octet_length(e.body),
      holdfast.quote(holdfast.readable(substring(e.body from 1 for 2001), 2000)))
  from unnest(p_ids) with ordinality as w(id, ord)
  join public.inbox_exception e on e.id = w.id and e.tenant_id is not distinct from p_tenant
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

-- The tenant's exceptions, newest first: {"state","provider","topic","from","to"}, each may be null. state: open or resolved;
-- provider: a sender (`shopify:<domain>`) or a kind of senders (`shopify`); `from` is inclusive, `to` exclusive. p_tenant null:
-- those that are of no tenant, where app.inbox_of_nobody is on. p_after: the last one seen.
create or replace function holdfast.exceptions_found(p_tenant uuid, p_filter jsonb, p_after uuid, p_limit int)
returns uuid[]
language plpgsql stable security invoker set plan_cache_mode = force_custom_plan as $$
declare
  v_after_at constant timestamptz := (
    select e.received_at from public.inbox_exception e where e.tenant_id is not distinct from p_tenant and e.id = p_after);
  v_state constant text := p_filter ->> 'state';
  v_provider constant text := p_filter ->> 'provider';
  v_topic constant text := p_filter ->> 'topic';
  v_from constant timestamptz := coalesce((p_filter ->> 'from')::timestamptz, '-infinity');
  v_to constant timestamptz := coalesce((p_filter ->> 'to')::timestamptz, 'infinity');
begin
  return array(
    select e.id from public.inbox_exception e
    where case when p_tenant is null then e.tenant_id is null else e.tenant_id = p_tenant end
      and e.received_at >= v_from and e.received_at < v_to
      and (p_after is null or (e.received_at, e.id) < (v_after_at, p_after))
      and (v_state is null or (v_state = 'open') = (e.resolved_at is null))
      and (v_provider is null or e.provider = v_provider or split_part(e.provider, ':', 1) = v_provider)
      and (v_topic is null or e.topic = v_topic)
    order by e.received_at desc, e.id desc
    limit p_limit);
end $$;

-- VOLATILE, since adopt_exceptions writes.
create or replace function holdfast.page_of_inbox_exception(p_tenant uuid, p_read jsonb) returns table (id text, document text)
language plpgsql volatile security invoker as $$
begin
  perform holdfast.adopt_exceptions(p_tenant);
  return query
  select f.ids[d.ord]::text, d.document
  from (select holdfast.exceptions_found(p_tenant, p_read, (p_read ->> 'after')::uuid, (p_read ->> 'limit')::int + 1) as ids) f
  cross join lateral holdfast.exception_documents(p_tenant, f.ids) d order by d.ord;
end $$;

-- The exceptions of no tenant, as a page of a list; the caller has the scope for that. Nothing else shows them to a person.
create or replace function holdfast.exceptions_of_nobody(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_limit constant int := p_read ->> 'limit';
  v_after constant uuid := p_read ->> 'after';
  v_ids text[];
  v_documents text[];
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  perform set_config('app.inbox_of_nobody', 'on', true);
  if v_after is not null
    and not exists (select from public.inbox_exception e where e.tenant_id is null and e.id = v_after) then
    return holdfast.decided('unknown_after');
  end if;
  select array_agg(f.ids[d.ord]::text order by d.ord), array_agg(d.document order by d.ord) into v_ids, v_documents
  from (select holdfast.exceptions_found(null, p_read, v_after, v_limit + 1) as ids) f
  cross join lateral holdfast.exception_documents(null, f.ids) d;
  perform set_config('app.inbox_of_nobody', '', true);
  return holdfast.document_answer(holdfast.page(v_ids, v_documents, v_limit));
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

-- {"tenantId","id"}, or {"tenantId","filter","after"}: open exceptions for Rust to read again, newest first, at most `limit` and not
-- many bytes. No row where there is none; retry_exception then says why. Each retry of a batch holds its locks to the commit.
create or replace function holdfast.exceptions_to_retry(p_call jsonb)
returns table (id text, provider text, topic text, body bytea, more boolean)
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_limit constant int := coalesce((p_call ->> 'limit')::int, 1);
  v_max_bytes constant bigint := 4194304;
  v_ids constant uuid[] := case when p_call ? 'id' then array[(p_call ->> 'id')::uuid]
    else holdfast.exceptions_found(v_tenant, p_call -> 'filter', (p_call ->> 'after')::uuid, v_limit + 1) end;
begin
  return query
  select f.id::text, e.provider, e.topic, e.body, cardinality(v_ids) > f.taken
  from (
    select w.id, w.place, max(w.place) over () as taken
    from (select u.id, row_number() over ids as place, sum(octet_length(x.body)) over ids as bytes
          from unnest(v_ids) with ordinality as u(id, ord)
          join public.inbox_exception x on x.tenant_id = v_tenant and x.id = u.id and x.resolved_at is null
          window ids as (order by u.ord)) w
    where w.place <= v_limit and (w.place = 1 or w.bytes <= v_max_bytes)) f
  join public.inbox_exception e on e.tenant_id = v_tenant and e.id = f.id
  order by f.place;
end $$;

-- Runs a kept event again. p_delivery: as of receive (command or fault), read again by the present code. The exception's row is
-- locked last, as in wake_waiting. Returns whether it is processed now; null where it has ended meanwhile: the caller rolls back.
create or replace function holdfast.rerun(p_tenant uuid, p_exception uuid, p_provider text, p_delivery jsonb, p_actor text)
returns boolean
language plpgsql volatile security invoker as $$
declare
  v_verdict holdfast.verdict;
begin
  v_verdict := holdfast.take_effect(p_tenant, p_provider, p_delivery || '{"retry":true}', p_actor);
  update public.inbox_exception e
  set command = case when e.redacted_at is null then coalesce(p_delivery -> 'command', e.command) else e.command end
  where e.tenant_id = p_tenant and e.id = p_exception and e.resolved_at is null;
  if not found then
    return null;
  end if;
  perform holdfast.note_attempt(p_tenant, p_exception, v_verdict, p_actor);
  return v_verdict.reason is null;
end $$;

-- {"tenantId","id","actor","delivery"}: a person's retry of one. A refusal is rolled back with the effect.
create or replace function holdfast.retry_exception(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_exception constant uuid := p_call ->> 'id';
  v_kept public.inbox_exception;
begin
  select e.* into v_kept from public.inbox_exception e
  where e.tenant_id = v_tenant and e.id = v_exception;
  if not found then
    return holdfast.refusal(404, 'not_found', 'There is no exception with this id.');
  elsif v_kept.resolved_at is not null
    or holdfast.rerun(v_tenant, v_exception, v_kept.provider, p_call -> 'delivery', p_call ->> 'actor') is null then
    return holdfast.exception_has_ended();
  end if;
  return holdfast.success(200, holdfast.exception_for_record(v_tenant, v_exception));
end $$;

-- {"tenantId","actor","items":[{"id","provider","delivery"}],"more"}: a person's retry of many, in the order given; `more`: whether
-- the filter finds others behind them. Each is undone by itself if it fails. Behind the first one no lock is waited for longer than
-- an instant: what was done already holds locks, and whoever holds the other may wait for those. The call then ends before that
-- one, as it does when its time is up, and `next` goes on from there.
create or replace function holdfast.retry_exceptions(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_actor constant text := p_call ->> 'actor';
  -- Below deadlock_timeout (1 s), and long beside a promise, which takes some milliseconds.
  v_patience constant text := '200ms';
  v_until constant timestamptz := clock_timestamp() + interval '2 s';
  v_lock_timeout constant text := current_setting('lock_timeout');
  v_item record;
  v_last text;
  v_first boolean := true;
  v_processed boolean;
  v_retried int := 0;
  v_resolved int := 0;
  v_more boolean := (p_call ->> 'more')::boolean;
begin
  for v_item in
    select i.item ->> 'id' as id, i.item ->> 'provider' as provider, i.item -> 'delivery' as delivery
    from jsonb_array_elements(p_call -> 'items') with ordinality as i(item, ord) order by i.ord
  loop
    if not v_first and clock_timestamp() > v_until then
      v_more := true;
      exit;
    end if;
    begin
      v_processed := holdfast.rerun(v_tenant, v_item.id::uuid, v_item.provider, v_item.delivery, v_actor);
      if v_processed is null then
        raise sqlstate 'HF001';
      end if;
      v_resolved := v_resolved + v_processed::int;
    exception
      when sqlstate 'HF001' then
        v_retried := v_retried - 1; -- it has ended meanwhile; its effect is undone
      when lock_not_available or deadlock_detected then
        if v_first then
          raise;
        end if;
        v_more := true;
        exit;
      when others then
        -- One that can never be run must not stop the others.
        raise warning 'exception % failed again: %', v_item.id, sqlstate;
        update public.inbox_exception e set attempts = e.attempts + 1, last_tried_at = now()
        where e.tenant_id = v_tenant and e.id = v_item.id::uuid and e.resolved_at is null;
    end;
    v_retried := v_retried + 1;
    v_first := false;
    v_last := v_item.id;
    perform set_config('lock_timeout', v_patience, true);
  end loop;
  perform set_config('lock_timeout', v_lock_timeout, true);
  return holdfast.success(200, format('{"retried":%s,"resolved":%s,"next":%s}', v_retried, v_resolved,
    case when v_more then holdfast.quote(v_last) else 'null' end));
end $$;

-- {"tenantId","id","actor","reason"}: ends one without processing it. tenantId null, here and in dismiss_exceptions: one of no tenant.
-- Only the operator's program asks for that, as the owner; row-level security hides those from any other role.
create or replace function holdfast.dismiss_exception(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_exception constant uuid := p_call ->> 'id';
begin
  if holdfast.end_exceptions(v_tenant, array[v_exception], p_call ->> 'reason', p_call ->> 'actor') = 0 then
    if exists (select from public.inbox_exception e where e.tenant_id is not distinct from v_tenant and e.id = v_exception) then
      return holdfast.exception_has_ended();
    end if;
    return holdfast.refusal(404, 'not_found', 'There is no exception with this id.');
  end if;
  return holdfast.success(200, holdfast.exception_for_record(v_tenant, v_exception));
end $$;

-- {"tenantId","actor","filter","after","reason","limit"}: ends the newest `limit` open ones that a filter finds.
create or replace function holdfast.dismiss_exceptions(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_limit constant int := p_call ->> 'limit';
  v_ids constant uuid[] := holdfast.exceptions_found(v_tenant, p_call -> 'filter', (p_call ->> 'after')::uuid, v_limit + 1);
begin
  return holdfast.success(200, format('{"dismissed":%s,"next":%s}',
    holdfast.end_exceptions(v_tenant, v_ids[1:v_limit], p_call ->> 'reason', p_call ->> 'actor'),
    case when cardinality(v_ids) > v_limit then format('"%s"', v_ids[v_limit]) else 'null' end));
end $$;

-- Ends those that are open, locked in the order of wake_exceptions; returns how many.
create or replace function holdfast.end_exceptions(p_tenant uuid, p_ids uuid[], p_reason text, p_actor text) returns bigint
language plpgsql volatile security invoker as $$
declare
  v_ended bigint;
begin
  perform from public.inbox_exception e
  where e.tenant_id is not distinct from p_tenant and e.id = any (p_ids) order by e.received_at, e.id for no key update;
  update public.inbox_exception e
  set resolved_at = now(), resolved_by = p_actor, dismiss_reason = p_reason, waits_for = null
  where e.tenant_id is not distinct from p_tenant and e.id = any (p_ids) and e.resolved_at is null;
  get diagnostics v_ended = row_count;
  return v_ended;
end $$;

create or replace function holdfast.exception_has_ended() returns holdfast.outcome
language sql immutable parallel safe
return holdfast.refusal(409, 'exception_resolved', 'It has been processed or dismissed; there is nothing left to do.');

-- One exception as an answer that is recorded: it must hold nothing that customers/redact would have to erase.
create or replace function holdfast.exception_for_record(p_tenant uuid, p_exception uuid) returns text
language sql stable security invoker as $$
  select jsonb_set(d.document::jsonb, '{excerpt}', 'null')::text
  from holdfast.exception_documents(p_tenant, array[p_exception]) d
$$;

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
