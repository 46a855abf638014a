-- The outbox as a person sees and changes it; each change runs under an idempotency key and adds a line to outbox_audit.

-- The members of one row, without braces: all but `attempts`, which lists count and one event's document tells one by one.
-- nextAttemptAt is null while a row waits in an ordered queue.
create or replace function holdfast.outbox_members(p_row public.outbox, p_destination_name text) returns text
language sql stable parallel safe
return format('"id":"%s","state":"%s","destinationId":%s,"destinationName":%s,"eventId":"%s","type":%s,'
              '"aggregate":{"type":"%s","id":"%s","sequence":%s},"createdAt":"%s","attemptCount":%s,"nextAttemptAt":%s,'
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
  select o.id::text, format('{%s,"attempts":%s}', holdfast.outbox_members(o, d.name), o.attempts)
  from holdfast.outbox_rows(p_tenant, p_read, v_after_at, v_after, (p_read ->> 'limit')::int + 1) o
  left join public.destination d on d.tenant_id = p_tenant and d.id = o.destination_id
  order by o.created_at desc, o.id desc;
end $$;

-- {"id","listsAttempts"}: one row, with its payload (the document that is sent), its last attempts and its history of changes by people.
-- Without listsAttempts, for consoles of the release before, `attempts` is their number and `attemptLog` the list.
create or replace function holdfast.read_outbox(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_row public.outbox;
  v_name text;
  v_history text;
  v_log text;
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  select * into v_row from public.outbox o where o.tenant_id = v_tenant and o.id = (p_read ->> 'id')::bigint;
  if not found then
    return holdfast.decided('not_found');
  end if;
  v_log := coalesce(v_row.attempt_log::text, '[]');
  select d.name into v_name from public.destination d where d.tenant_id = v_tenant and d.id = v_row.destination_id;
  select string_agg(format('{"at":"%s","by":"%s","byName":%s,"action":"%s","reason":%s}', holdfast.rfc3339(a.at),
           a.app_user_id, holdfast.quote(u.display_name), a.action, holdfast.quote(a.details ->> 'reason')), ','
         order by a.id)
  into v_history
  from public.outbox_audit a
  left join public.app_user u on u.tenant_id = v_tenant and u.id = a.app_user_id
  where a.tenant_id = v_tenant and a.outbox_id = v_row.id;
  return holdfast.document_answer(format('{%s,%s,"discardReason":%s,"requeues":%s,"history":[%s],"payload":%s}',
    holdfast.outbox_members(v_row, v_name),
    case when (p_read ->> 'listsAttempts')::boolean then format('"attempts":%s', v_log)
         else format('"attempts":%s,"attemptLog":%s', v_row.attempts, v_log) end,
    holdfast.quote(v_row.discard_reason), v_row.requeues, v_history, v_row.payload));
end $$;

-- Makes dead or delivered rows, which the caller has locked in the order of their ids, pending and due now, with all their
-- attempts. At an ordered destination they take their old place: the row that was the head waits again, unless it is leased.
create or replace function holdfast.back_to_pending(p_ids bigint[]) returns void
language plpgsql volatile security invoker as $$
declare
  v_heads bigint[];
  v_queues record;
begin
  v_queues := holdfast.queues_of(p_ids);
  v_heads := holdfast.heads_of(v_queues.destinations, v_queues.aggregates);
  update public.outbox o set attempts = 0, requeues = o.requeues + 1, processed_at = null, dead_lettered_at = null,
    wait_checked = false, keyed = (select d.keyed from public.destination d where d.id = o.destination_id),
    next_attempt_at = case when (select d.ordered from public.destination d where d.id = o.destination_id)
                      then 'infinity' else clock_timestamp() end
  where o.id = any (p_ids);
  perform holdfast.make_wait(v_heads);
  perform holdfast.wake_next(v_queues.destinations, v_queues.aggregates);
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
  elsif not exists (select from public.destination d where d.tenant_id = v_tenant and d.id = v_row.destination_id)
    or holdfast.outbox_state(v_row) not in ('dead', 'delivered') then
    return holdfast.refusal(409, 'outbox_state',
      case when v_row.destination_id is null then 'This event has no subscriber.'
           when holdfast.outbox_state(v_row) in ('dead', 'delivered') then 'The destination of this event was deleted.'
           else format('This event is %s; only a dead or a delivered one can be sent again.',
                       holdfast.outbox_state(v_row)) end,
      format('"state":"%s"', holdfast.outbox_state(v_row)));
  end if;
  perform holdfast.back_to_pending(array[v_id]);
  perform holdfast.audit(p_call, 'requeued', v_id, v_row.destination_id,
    jsonb_build_object('state', holdfast.outbox_state(v_row)));
  return holdfast.success(200, format('{"id":"%s","state":"pending","attempts":0}', v_id));
end $$;

-- The tenant's pending rows, or those of the filter's destination, in the order of their index: found however much is settled.
-- p_after: the last row seen.
create or replace function holdfast.pending_rows(p_tenant uuid, p_filter jsonb, p_after bigint, p_limit int)
returns setof public.outbox language plpgsql stable security invoker as $$
declare
  v_after public.outbox;
  v_left int := p_limit;
  v_destination uuid;
  v_found int;
begin
  select * into v_after from public.outbox o where o.tenant_id = p_tenant and o.id = p_after;
  for v_destination in
    select d.id from public.destination d
    where d.tenant_id = p_tenant and d.id = coalesce((p_filter ->> 'destination')::uuid, d.id)
      and (p_after is null or d.id >= v_after.destination_id)
    order by d.id
  loop
    return query
    select o.* from public.outbox o
    where o.destination_id = v_destination and holdfast.is_pending(o)
      and (p_after is null or v_destination > v_after.destination_id
           or (o.next_attempt_at, o.id) > (v_after.next_attempt_at, p_after))
    order by o.next_attempt_at, o.id limit v_left;
    get diagnostics v_found = row_count;
    v_left := v_left - v_found;
    exit when v_left = 0;
  end loop;
end $$;

-- The rows that a change by filter takes next: looks at up to p_look of the tenant's rows that are in the filter's state, in the
-- order of their list (pending ones: of pending_rows) and from p_after on (an id), and takes up to p_most of those that fit the
-- filter. next: the row to go on after, null at the end.
create or replace function holdfast.outbox_batch(p_tenant uuid, p_filter jsonb, p_after bigint, p_look int, p_most int,
  out ids bigint[], out next bigint) language plpgsql stable security invoker as $$
declare
  v_destination constant uuid := p_filter ->> 'destination';
  v_type constant text := p_filter ->> 'type';
  v_from constant timestamptz := coalesce((p_filter ->> 'from')::timestamptz, '-infinity');
  v_to constant timestamptz := coalesce((p_filter ->> 'to')::timestamptz, 'infinity');
  v_after_at constant timestamptz := (select o.created_at from public.outbox o where o.tenant_id = p_tenant and o.id = p_after);
  v_looked bigint[];
  v_fit boolean[];
  v_last int;
begin
  if p_filter ->> 'state' = 'pending' then
    select array_agg(o.id order by o.ordinality),
           array_agg((v_type is null or o.event_type = v_type) and o.created_at >= v_from and o.created_at < v_to
                     order by o.ordinality)
    into v_looked, v_fit
    from holdfast.pending_rows(p_tenant, p_filter, p_after, p_look) with ordinality o;
  else
    select array_agg(o.id order by o.ordinality),
           array_agg(o.destination_id is not null and (v_type is null or o.event_type = v_type)
                     and (v_destination is null or o.destination_id = v_destination) order by o.ordinality)
    into v_looked, v_fit
    from holdfast.outbox_rows(p_tenant, p_filter - array['destination', 'type'], v_after_at, p_after, p_look)
      with ordinality o;
  end if;
  select array_agg(x.id), max(x.place) into ids, v_last
  from (select l.id, l.place from unnest(v_looked, v_fit) with ordinality as l(id, fits, place)
        where l.fits order by l.place limit p_most) x;
  -- Where the batch is full, what was looked at behind it is looked at again.
  if cardinality(ids) < p_most or ids is null then
    v_last := cardinality(v_looked);
  end if;
  if cardinality(v_looked) = p_look or v_last < cardinality(v_looked) then
    next := v_looked[v_last];
  end if;
end $$;

-- {"tenantId","filter","after","look","most"}: outbox_batch of a call, its rows locked in the order of their ids. refused: the filter's
-- state is none of p_states (p_refusal says so), or the tenant has no event `after`.
create or replace function holdfast.take_batch(p_call jsonb, p_states text[], p_refusal text, out refused holdfast.outcome,
  out ids bigint[], out next bigint) language plpgsql volatile security invoker as $$
declare
  v_filter constant jsonb := p_call -> 'filter';
  v_state constant text := v_filter ->> 'state';
  v_tenant constant uuid := p_call ->> 'tenantId';
begin
  if v_state <> all (p_states) then
    refused := holdfast.refusal(409, 'outbox_state', p_refusal, format('"state":"%s"', v_state));
    return;
  elsif holdfast.unknown_event(v_tenant, p_call ->> 'after') then
    refused := holdfast.does_not_fit('/after', 'must be the id of an event');
    return;
  end if;
  select b.ids, b.next into ids, next
  from holdfast.outbox_batch(v_tenant, v_filter, (p_call ->> 'after')::bigint, (p_call ->> 'look')::int,
                             (p_call ->> 'most')::int) b;
  ids := array(
    select o.id from public.outbox o
    where o.id = any (take_batch.ids) and o.tenant_id = v_tenant and holdfast.outbox_state(o) = v_state
    order by o.id for no key update);
end $$;

-- {"tenantId","userId","actor","filter","after","look","most"}: sends again the next rows that a filter finds, whose state must be
-- dead or delivered, but for those whose destination was deleted. `next` in the answer is where the next call goes on.
create or replace function holdfast.requeue_many(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_batch constant record :=
    holdfast.take_batch(p_call, array['dead', 'delivered'], 'Only dead or delivered events can be sent again.');
  v_ids bigint[];
begin
  if (v_batch.refused).status is not null then
    return v_batch.refused;
  end if;
  v_ids := array(
    select x.id from unnest(v_batch.ids) x(id)
    where exists (select from public.outbox o join public.destination d on d.id = o.destination_id where o.id = x.id offset 0));
  perform holdfast.back_to_pending(v_ids);
  perform holdfast.audit_rows(p_call, 'requeued', v_ids);
  return holdfast.success(200, format('{"requeued":%s,"next":%s}', cardinality(v_ids), holdfast.quote(v_batch.next::text)));
end $$;

-- {"tenantId","userId","actor","filter","after","look","most","reason"}: discards the next rows that a filter finds, whose state
-- must be dead or pending, in the same steps.
create or replace function holdfast.discard_many(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_batch constant record :=
    holdfast.take_batch(p_call, array['dead', 'pending'], 'Only dead or pending events can be set aside.');
begin
  if (v_batch.refused).status is not null then
    return v_batch.refused;
  end if;
  perform holdfast.set_aside(v_batch.ids, p_call ->> 'reason');
  perform holdfast.audit_rows(p_call, 'discarded', v_batch.ids);
  return holdfast.success(200, format('{"discarded":%s,"next":%s}', cardinality(v_batch.ids),
                                      holdfast.quote(v_batch.next::text)));
end $$;

-- Whether a batch would go on after an event that the tenant does not have.
create or replace function holdfast.unknown_event(p_tenant uuid, p_id text) returns boolean
language sql stable as $$
  select p_id is not null and not exists (select from public.outbox o where o.tenant_id = p_tenant and o.id = p_id::bigint)
$$;

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
  perform holdfast.set_aside(array[v_id], v_reason);
  perform holdfast.audit(p_call, 'discarded', v_id, v_row.destination_id, jsonb_build_object('reason', v_reason));
  return holdfast.success(200, format('{"id":"%s","state":"discarded","reason":%s}', v_id, holdfast.quote(v_reason)));
end $$;

create or replace function holdfast.audit(p_call jsonb, p_action text, p_outbox bigint, p_destination uuid,
  p_details jsonb) returns void language sql volatile as $$
  insert into public.outbox_audit (tenant_id, actor, app_user_id, action, outbox_id, destination_id, details)
  values ((p_call ->> 'tenantId')::uuid, p_call ->> 'actor', (p_call ->> 'userId')::uuid, p_action, p_outbox,
          p_destination, p_details)
$$;

-- One audit line for each of these rows, with the call's filter and reason.
create or replace function holdfast.audit_rows(p_call jsonb, p_action text, p_ids bigint[]) returns void
language sql volatile as $$
  insert into public.outbox_audit (tenant_id, actor, app_user_id, action, outbox_id, destination_id, details)
  select o.tenant_id, p_call ->> 'actor', (p_call ->> 'userId')::uuid, p_action, o.id, o.destination_id,
         jsonb_strip_nulls(jsonb_build_object('filter', p_call -> 'filter', 'reason', p_call -> 'reason'))
  from public.outbox o where o.id = any (p_ids)
$$;

-- {"most"}: what waits, and what died, at each of the tenant's destinations. Counts up to `most` rows of each kind in all, in
-- even parts; "exact" tells whether that was all. The age is that of the oldest row counted.
create or replace function holdfast.outbox_health(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_now constant timestamptz := clock_timestamp();
  v_busy bigint;
  v_most bigint;
  v_document text;
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  select count(*) filter (where (select true from public.outbox o
                                 where o.destination_id = d.id and holdfast.is_pending(o) limit 1)
                             or (select true from public.outbox o
                                 where o.destination_id = d.id and o.dead_lettered_at is not null limit 1))
  into v_busy from public.destination d where d.tenant_id = v_tenant;
  v_most := greatest((p_read ->> 'most')::bigint / greatest(v_busy, 1), 1);
  select format('{"backlog":%s,"exact":%s,"oldestPendingAgeSeconds":%s,"deadLetters":%s,"destinations":[%s]}',
    coalesce(sum(q.backlog), 0), coalesce(bool_and(q.exact), true)::text, coalesce(max(q.age_secs)::text, 'null'),
    coalesce(sum(q.dead), 0),
    string_agg(format('{"id":"%s","name":%s,"kind":"%s","state":"%s","backlog":%s,"exact":%s,"oldestPendingAgeSeconds":%s,'
                      '"deadLetters":%s,"consecutiveFailures":%s,"breakerOpenUntil":%s,"lastError":%s,'
                      '"lastSuccessAt":%s,"lastFailureAt":%s}',
        q.id, holdfast.quote(q.name), q.kind, q.state, q.backlog, q.exact::text, coalesce(q.age_secs::text, 'null'), q.dead,
        coalesce(q.failures, 0), holdfast.quote(holdfast.rfc3339(q.open_until)), holdfast.quote(q.last_error),
        holdfast.quote(holdfast.rfc3339(q.last_success_at)), holdfast.quote(holdfast.rfc3339(q.last_failure_at))),
      ',' order by q.created_at desc, q.id))
  into v_document
  from (
    select d.id, d.name, d.kind, d.state, d.created_at, least(p.seen, v_most) as backlog, p.age_secs,
           least(x.seen, v_most) as dead, p.seen <= v_most and x.seen <= v_most as exact, h.*
    from public.destination d
    cross join lateral (
      select count(*) as seen, round(extract(epoch from v_now - min(w.created_at))::numeric, 3) as age_secs
      from (select o.created_at from public.outbox o
            where o.destination_id = d.id and holdfast.is_pending(o)
            order by o.next_attempt_at, o.id limit v_most + 1) w) p
    cross join lateral (
      select count(*) as seen
      from (select from public.outbox o
            where o.destination_id = d.id and o.dead_lettered_at is not null
            order by o.created_at, o.id limit v_most + 1) w) x
    left join lateral (select g.failures, g.open_until, g.last_error, g.last_success_at, g.last_failure_at
                       from public.destination_health g where g.destination_id = d.id) h on true
    where d.tenant_id = v_tenant) q;
  return holdfast.document_answer(v_document);
end $$;
