-- How attempts end (leased -> delivered, free or dead letter), and what that says of the health of their destinations.

-- Disables a destination that answered 410 Gone and tells the tenant's others. Its events wait. False: it was disabled before.
create or replace function holdfast.disable_destination(p_destination uuid, p_reason text) returns boolean
language plpgsql volatile security invoker as $$
begin
  update public.destination d set state = 'disabled' where d.id = p_destination and d.state <> 'disabled';
  if not found then
    return false; -- by another attempt already
  end if;
  -- If a person enables it again, its breaker is closed.
  update public.destination_health h set failures = 0, open_until = null, opened = 0, probing = false
  where h.destination_id = p_destination;
  perform holdfast.tell_of_destination(p_destination, 'destination.disabled', 'gone', p_reason);
  return true;
end $$;

-- Notes results in the health of one destination, and opens or closes its circuit breaker. A success closes it; p_breaker.after
-- failed events in a row, or a failed probe, open it for openSecs, doubled each time up to openMaxSecs. The tenant's others are
-- told of its first opening and of its closing. Returns opened, closed, or null. An event counts once, at its first attempt:
-- later it backs off by itself, and one poison event must not stop the others. A destination that asks for a pause is healthy.
create or replace function holdfast.relay_note_health(p_destination uuid, p_delivered int, p_failed int,
  p_first_failed int, p_error text, p_pause_secs float8, p_breaker jsonb) returns text
language plpgsql volatile security invoker as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_health public.destination_health;
  v_opens boolean;
begin
  select * into v_health from public.destination_health h where h.destination_id = p_destination;
  if found and p_failed = 0 and p_error is null and p_pause_secs is null and v_health.failures = 0
     and v_health.open_until is null and v_health.last_success_at > v_now - interval '10 s' then
    return null; -- nothing new: saves a write
  end if;
  insert into public.destination_health (tenant_id, destination_id)
  select d.tenant_id, d.id from public.destination d where d.id = p_destination on conflict do nothing;
  select * into v_health from public.destination_health h where h.destination_id = p_destination for no key update;
  v_opens := p_delivered = 0 and p_failed > 0
    and (v_health.probing
         or (v_health.open_until is null and v_health.failures + p_first_failed >= (p_breaker ->> 'after')::int));
  update public.destination_health h set
    failures = case when p_delivered > 0 then 0 else h.failures + p_first_failed end,
    open_until = case when p_delivered > 0 then null
      -- 2^20 is far beyond the limit, and does not overflow.
      when v_opens then v_now + make_interval(secs => least(
        (p_breaker ->> 'openSecs')::float8 * power(2, least(h.opened, 20)), (p_breaker ->> 'openMaxSecs')::float8))
      else h.open_until end,
    opened = case when p_delivered > 0 then 0 when v_opens then h.opened + 1 else h.opened end,
    probing = h.probing and p_delivered = 0 and p_failed = 0,
    paced_until = case when p_pause_secs is null then h.paced_until
      else greatest(h.paced_until, v_now + make_interval(secs => p_pause_secs)) end,
    last_error = coalesce(p_error, h.last_error),
    last_failure_at = case when p_error is not null then v_now else h.last_failure_at end,
    last_success_at = case when p_delivered > 0 then v_now else h.last_success_at end
  where h.destination_id = p_destination;
  if v_opens and v_health.opened = 0 then
    perform holdfast.tell_of_destination(p_destination, 'destination.disabled', 'failing',
      format('%s events in a row failed; it is probed from time to time', v_health.failures + p_first_failed));
    return 'opened';
  elsif p_delivered > 0 and v_health.open_until is not null then
    perform holdfast.tell_of_destination(p_destination, 'destination.recovered', 'answering', 'it answers again');
    return 'closed';
  end if;
  return null;
end $$;

-- {"attempts":[{"id","token","outcome","error","jitter","retryAfterSecs","pauseSecs"}],"unitSecs","breaker"}: settles attempts.
-- outcome: delivered; failed: due again after its backoff, or a dead letter after the last attempt; rejected, a permanent
-- rejection by a healthy destination: a dead letter; gone: disables the destination, whose row stays pending. pauseSecs: the
-- pause that the whole destination asked for. Only the token that holds a row settles it, within its lease: an id that is missing
-- in the answer was refused. Rows without an id come last: opened, closed, disabled (destinations), woken (other rows).
create or replace function holdfast.relay_settle(p_call jsonb)
returns table (id bigint, outcome text) language plpgsql volatile security invoker set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_attempts constant holdfast.settled_attempt[] := array(
    select row((a ->> 'id')::bigint, (a ->> 'token')::uuid, a ->> 'outcome', a ->> 'error', (a ->> 'jitter')::float8,
               (a ->> 'retryAfterSecs')::float8, (a ->> 'pauseSecs')::float8)::holdfast.settled_attempt
    from jsonb_array_elements(p_call -> 'attempts') a order by (a ->> 'id')::bigint);
  v_ids bigint[];
  v_outcomes text[];
  v_settled holdfast.settled_attempt[];
begin
  -- LATERAL: each attempt finds its row by key, however few rows the planner expects. It would compare every attempt with each.
  perform from unnest(v_attempts) a
  cross join lateral (select from public.outbox o where o.id = a.id for no key update) o;
  select array_agg(s.id), array_agg(s.outcome), array_agg(s.attempt) into v_ids, v_outcomes, v_settled
  from holdfast.relay_end_leases(v_attempts, clock_timestamp(), (p_call ->> 'unitSecs')::float8) s;
  if v_ids is null then
    return;
  end if;
  return query select s.id, s.outcome from unnest(v_ids, v_outcomes) s(id, outcome);
  return query select null::bigint, h.told from holdfast.relay_note_attempts(v_settled, p_call -> 'breaker') h(told);
  if holdfast.wake_behind(v_ids) then
    return query select null::bigint, 'woken';
  end if;
  perform holdfast.tally(v_settled);
end $$;

-- Ends the leases of the rows of these attempts, which the caller has locked, and returns what was settled. A row that failed
-- while a person put earlier ones before it in its ordered queue waits behind them.
create or replace function holdfast.relay_end_leases(p_attempts holdfast.settled_attempt[], p_now timestamptz,
  p_unit_secs float8) returns table (id bigint, outcome text, attempt holdfast.settled_attempt)
language plpgsql volatile security invoker set enable_seqscan = off as $$
#variable_conflict use_column
begin
  return query
  update public.outbox o set lease_token = null, leased_until = null,
    processed_at = case when a.outcome = 'delivered' then p_now end,
    dead_lettered_at = case when a.dies then p_now end,
    last_error = coalesce(a.error, o.last_error),
    wait_checked = o.wait_checked and not a.waits,
    next_attempt_at = case
      when a.waits then 'infinity'
      when a.outcome = 'failed' then p_now + make_interval(secs => holdfast.retry_delay_secs(o.attempts, p_unit_secs, a.jitter,
        a.retry_after_secs))
      else p_now end
  from (select a.*, a as attempt, r.place, r.dies,
               r.ordered and a.outcome = 'failed' and not r.dies and coalesce(
                 (select true from public.outbox h
                  where h.keyed and h.destination_id = r.destination_id and h.aggregate_id = r.aggregate_id
                    and h.sequence < r.sequence and holdfast.is_pending(h) limit 1), false) as waits
        from unnest(p_attempts) a
        cross join lateral (
          select r.ctid as place, r.destination_id, r.aggregate_id, r.sequence, d.ordered,
                 a.outcome = 'rejected' or (a.outcome = 'failed' and r.attempts >= d.max_attempts) as dies
          from public.outbox r
          cross join lateral (select d.ordered, d.max_attempts from public.destination d where d.id = r.destination_id offset 0) d
          -- None of these finds a row by another index than that of its key.
          where r.id = a.id and r.lease_token is not distinct from a.token
            and coalesce(r.leased_until, '-infinity') > p_now and holdfast.outbox_state(r) = 'pending'
          offset 0) r) a
  where o.ctid = a.place
  returning o.id, case when a.dies then 'dead' else a.outcome end, a.attempt;
end $$;

-- Notes settled attempts in the health of their destinations. Returns what became of these: disabled, opened, closed.
create or replace function holdfast.relay_note_attempts(p_attempts holdfast.settled_attempt[], p_breaker jsonb) returns setof text
language plpgsql volatile security invoker as $$
declare
  v_totals record;
  v_change text;
begin
  for v_totals in
    select o.destination_id,
      count(*) filter (where a.outcome in ('delivered', 'rejected'))::int as delivered,
      count(*) filter (where a.outcome = 'failed' and a.pause_secs is null)::int as failed,
      count(*) filter (where a.outcome = 'failed' and a.pause_secs is null and o.attempts = 1)::int as first_failed,
      bool_or(a.outcome = 'gone') as gone, max(a.error) as error, max(a.pause_secs) as pause_secs
    from unnest(p_attempts) a
    cross join lateral (select r.destination_id, r.attempts from public.outbox r where r.id = a.id offset 0) o
    group by 1 order by 1
  loop
    if v_totals.gone and holdfast.disable_destination(v_totals.destination_id, 'answered 410 Gone') then
      return next 'disabled';
    end if;
    v_change := holdfast.relay_note_health(v_totals.destination_id, v_totals.delivered, v_totals.failed, v_totals.first_failed,
      v_totals.error, v_totals.pause_secs, p_breaker);
    if v_change is not null then
      return next v_change;
    end if;
  end loop;
end $$;
