-- The outbox as a person sees and changes it; each change runs under an idempotency key and adds a line to outbox_audit.

-- The members of one row, without braces. nextAttemptAt is null while a row waits in an ordered queue.
create or replace function holdfast.outbox_members(p_row public.outbox, p_destination_name text) returns text
language sql stable parallel safe
return format('"id":"%s","state":"%s","destinationId":%s,"destinationName":%s,"eventId":"%s","type":%s,'
              '"aggregate":{"type":"%s","id":"%s","sequence":%s},"createdAt":"%s","attempts":%s,"nextAttemptAt":%s,'
              '"deliveredAt":%s,"deadLetteredAt":%s,"discardedAt":%s,"lastError":%s',
  p_row.id, holdfast.outbox_state(p_row), holdfast.quote(p_row.destination_id::text),
  holdfast.quote(p_destination_name), p_row.event_id, holdfast.quote(p_row.event_type), p_row.aggregate_type,
  p_row.aggregate_id, p_row.sequence, holdfast.rfc3339(p_row.created_at), p_row.attempts,
  holdfast.quote(case when isfinite(p_row.next_attempt_at) and holdfast.outbox_state(p_row) = 'pending'
                      then holdfast.rfc3339(p_row.next_attempt_at) end),
  holdfast.quote(holdfast.rfc3339(p_row.processed_at)), holdfast.quote(holdfast.rfc3339(p_row.dead_lettered_at)),
  holdfast.quote(holdfast.rfc3339(p_row.discarded_at)), holdfast.quote(p_row.last_error));

-- The tenant's rows, newest first: {"state","destination","type","from","to"}, each may be null; `from` is inclusive, `to`
-- exclusive. p_after_at, p_after: created_at and id of the last row seen.
create or replace function holdfast.outbox_rows(p_tenant uuid, p_filter jsonb, p_after_at timestamptz, p_after bigint,
  p_limit int) returns setof public.outbox
language plpgsql stable security invoker set plan_cache_mode = force_custom_plan as $$
declare
  v_state constant text := p_filter ->> 'state';
  v_destination constant uuid := p_filter ->> 'destination';
  v_type constant text := p_filter ->> 'type';
  v_from constant timestamptz := coalesce((p_filter ->> 'from')::timestamptz, '-infinity');
  v_to constant timestamptz := coalesce((p_filter ->> 'to')::timestamptz, 'infinity');
begin
  return query
  select o.* from public.outbox o
  where o.tenant_id = p_tenant and o.created_at >= v_from and o.created_at < v_to
    and (p_after is null or (o.created_at, o.id) < (p_after_at, p_after))
    and (v_destination is null or o.destination_id = v_destination)
    and (v_type is null or o.event_type = v_type)
    and (v_state is distinct from 'delivered' or o.processed_at is not null)
    and (v_state is distinct from 'dead' or o.dead_lettered_at is not null)
    and (v_state is distinct from 'discarded' or o.discarded_at is not null)
    and (v_state is distinct from 'pending' or (holdfast.is_pending(o)))
  order by o.created_at desc, o.id desc limit p_limit;
end $$;

create or replace function holdfast.page_of_outbox(p_tenant uuid, p_read jsonb) returns table (id text, document text)
language plpgsql stable security invoker as $$
declare
  v_after constant bigint := p_read ->> 'after';
  v_after_at constant timestamptz := (select o.created_at from public.outbox o where o.tenant_id = p_tenant and o.id = v_after);
begin
  return query
  select o.id::text, '{' || holdfast.outbox_members(o, d.name) || '}'
  from holdfast.outbox_rows(p_tenant, p_read, v_after_at, v_after, (p_read ->> 'limit')::int + 1) o
  left join public.destination d on d.tenant_id = p_tenant and d.id = o.destination_id
  order by o.created_at desc, o.id desc;
end $$;

-- {"id"}: one row, with its payload (the document that is sent) and its history of changes by people.
create or replace function holdfast.read_outbox(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_row public.outbox;
  v_name text;
  v_history text;
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  select * into v_row from public.outbox o where o.tenant_id = v_tenant and o.id = (p_read ->> 'id')::bigint;
  if not found then
    return holdfast.decided('not_found');
  end if;
  select d.name into v_name from public.destination d where d.tenant_id = v_tenant and d.id = v_row.destination_id;
  select string_agg(format('{"at":"%s","by":"%s","byName":%s,"action":"%s","reason":%s}', holdfast.rfc3339(a.at),
           a.app_user_id, holdfast.quote(u.display_name), a.action, holdfast.quote(a.details ->> 'reason')), ','
         order by a.id)
  into v_history
  from public.outbox_audit a
  left join public.app_user u on u.tenant_id = v_tenant and u.id = a.app_user_id
  where a.tenant_id = v_tenant and a.outbox_id = v_row.id;
  return holdfast.document_answer(format('{%s,"discardReason":%s,"requeues":%s,"history":[%s],"payload":%s}',
    holdfast.outbox_members(v_row, v_name), holdfast.quote(v_row.discard_reason), v_row.requeues, v_history,
    v_row.payload));
end $$;

-- Makes dead or delivered rows, which the caller has locked in the order of their ids, pending and due now, with all their
-- attempts. At an ordered destination they take their old place: rows behind them wait again, unless they are leased.
create or replace function holdfast.back_to_pending(p_ids bigint[]) returns void
language plpgsql volatile security invoker as $$
begin
  update public.outbox o set attempts = 0, requeues = o.requeues + 1, processed_at = null, dead_lettered_at = null,
    next_attempt_at = case when d.ordered then 'infinity' else clock_timestamp() end, keyed = d.keyed
  from public.destination d
  where o.id = any (p_ids) and d.tenant_id = o.tenant_id and d.id = o.destination_id;
  perform holdfast.head_only(q.destination_id, q.aggregate_id)
  from (select distinct o.destination_id, o.aggregate_id
        from public.outbox o join public.destination d on d.tenant_id = o.tenant_id and d.id = o.destination_id
        where o.id = any (p_ids) and d.ordered) q;
end $$;

-- {"tenantId","userId","actor","id"}: sends one row again.
create or replace function holdfast.requeue_one(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_id constant bigint := p_call ->> 'id';
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_row public.outbox;
begin
  select * into v_row from public.outbox o where o.tenant_id = v_tenant and o.id = v_id for no key update;
  if not found then
    return holdfast.refusal(404, 'not_found', 'There is nothing at this address.');
  elsif holdfast.outbox_state(v_row) not in ('dead', 'delivered') or v_row.destination_id is null then
    return holdfast.refusal(409, 'outbox_state',
      case when v_row.destination_id is null then 'This event has no subscriber.'
           else format('This event is %s; only a dead or a delivered one can be sent again.',
                       holdfast.outbox_state(v_row)) end,
      format('"state":"%s"', holdfast.outbox_state(v_row)));
  end if;
  perform holdfast.back_to_pending(array[v_id]);
  perform holdfast.audit(p_call, 'requeued', v_id, v_row.destination_id,
    jsonb_build_object('state', holdfast.outbox_state(v_row)));
  return holdfast.success(200, format('{"id":"%s","state":"pending","attempts":0}', v_id));
end $$;

-- {"tenantId","userId","actor","filter","limit"}: sends again the newest `limit` rows that a filter finds, whose state must be
-- dead or delivered. The caller repeats it until it answers 0.
create or replace function holdfast.requeue_many(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_filter constant jsonb := p_call -> 'filter';
  v_limit constant int := p_call ->> 'limit';
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_state constant text := v_filter ->> 'state';
  v_ids bigint[];
begin
  if v_state not in ('dead', 'delivered') then
    return holdfast.refusal(409, 'outbox_state', 'Only dead or delivered events can be sent again.',
      format('"state":"%s"', v_state));
  end if;
  v_ids := array(select o.id from holdfast.outbox_rows(v_tenant, v_filter, null, null, v_limit) o
                 where o.destination_id is not null);
  v_ids := array(
    select o.id from public.outbox o
    where o.id = any (v_ids) and o.tenant_id = v_tenant
      and case v_state when 'dead' then o.dead_lettered_at else o.processed_at end is not null
    order by o.id for no key update);
  perform holdfast.back_to_pending(v_ids);
  insert into public.outbox_audit (tenant_id, actor, app_user_id, action, outbox_id, destination_id, details)
  select v_tenant, p_call ->> 'actor', (p_call ->> 'userId')::uuid, 'requeued', o.id, o.destination_id,
         jsonb_build_object('state', v_state, 'filter', v_filter)
  from public.outbox o where o.id = any (v_ids);
  return holdfast.success(200, format('{"requeued":%s}', cardinality(v_ids)));
end $$;

-- {"tenantId","userId","actor","id","reason"}: discards a pending or dead row. The result of an attempt in flight is refused.
create or replace function holdfast.discard_one(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_id constant bigint := p_call ->> 'id';
  v_reason constant text := p_call ->> 'reason';
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_row public.outbox;
begin
  select * into v_row from public.outbox o where o.tenant_id = v_tenant and o.id = v_id for no key update;
  if not found then
    return holdfast.refusal(404, 'not_found', 'There is nothing at this address.');
  elsif holdfast.outbox_state(v_row) not in ('dead', 'pending') then
    return holdfast.refusal(409, 'outbox_state',
      format('This event is %s; only a dead or a pending one can be set aside.', holdfast.outbox_state(v_row)),
      format('"state":"%s"', holdfast.outbox_state(v_row)));
  end if;
  update public.outbox o set discarded_at = clock_timestamp(), discard_reason = v_reason, dead_lettered_at = null,
    lease_token = null, leased_until = null
  where o.id = v_id;
  if v_row.keyed then
    perform holdfast.wake_next(array[v_row.destination_id], array[v_row.aggregate_id]);
  end if;
  perform holdfast.audit(p_call, 'discarded', v_id, v_row.destination_id, jsonb_build_object('reason', v_reason));
  return holdfast.success(200, format('{"id":"%s","state":"discarded","reason":%s}', v_id, holdfast.quote(v_reason)));
end $$;

create or replace function holdfast.audit(p_call jsonb, p_action text, p_outbox bigint, p_destination uuid,
  p_details jsonb) returns void language sql volatile as $$
  insert into public.outbox_audit (tenant_id, actor, app_user_id, action, outbox_id, destination_id, details)
  values ((p_call ->> 'tenantId')::uuid, p_call ->> 'actor', (p_call ->> 'userId')::uuid, p_action, p_outbox,
          p_destination, p_details)
$$;

create or replace function holdfast.outbox_health(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_now constant timestamptz := clock_timestamp();
  v_document text;
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  select format('{"backlog":%s,"oldestPendingAgeSeconds":%s,"deadLetters":%s,"destinations":[%s]}',
    coalesce(sum(q.backlog), 0), coalesce(max(q.age_secs)::text, 'null'), coalesce(sum(q.dead), 0),
    string_agg(format('{"id":"%s","name":%s,"kind":"%s","state":"%s","backlog":%s,"oldestPendingAgeSeconds":%s,'
                      '"deadLetters":%s,"consecutiveFailures":%s,"breakerOpenUntil":%s,"lastError":%s,'
                      '"lastSuccessAt":%s,"lastFailureAt":%s}',
        q.id, holdfast.quote(q.name), q.kind, q.state, q.backlog, coalesce(q.age_secs::text, 'null'), q.dead,
        coalesce(q.failures, 0), holdfast.quote(holdfast.rfc3339(q.open_until)), holdfast.quote(q.last_error),
        holdfast.quote(holdfast.rfc3339(q.last_success_at)), holdfast.quote(holdfast.rfc3339(q.last_failure_at))),
      ',' order by q.created_at desc, q.id))
  into v_document
  from (
    select d.id, d.name, d.kind, d.state, d.created_at, p.backlog, p.age_secs, x.dead, h.*
    from public.destination d
    cross join lateral (
      select count(*) as backlog, round(extract(epoch from v_now - min(o.created_at))::numeric, 3) as age_secs
      from public.outbox o where o.destination_id = d.id
        and holdfast.is_pending(o)) p
    left join (select o.destination_id, count(*) as dead from public.outbox o
               where o.tenant_id = v_tenant and o.dead_lettered_at is not null group by 1) s on s.destination_id = d.id
    cross join lateral (select coalesce(s.dead, 0) as dead) x
    left join lateral (select g.failures, g.open_until, g.last_error, g.last_success_at, g.last_failure_at
                       from public.destination_health g where g.destination_id = d.id) h on true
    where d.tenant_id = v_tenant) q;
  return holdfast.document_answer(v_document);
end $$;
