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
  update public.destination_health h set failures = 0, open_until = null, opened = 0, probing = false,
    throttled_until = null, throttles = 0, throttled_since = null, unreachable_since = null
  where h.destination_id = p_destination;
  perform holdfast.tell_of_destination(p_destination, 'destination.disabled', 'gone', p_reason);
  return true;
end $$;

drop function if exists holdfast.relay_note_health(uuid, int, int, int, text, float8, jsonb);
drop function if exists holdfast.relay_note_attempts(holdfast.settled_attempt[], jsonb);
drop function if exists holdfast.relay_end_leases(holdfast.settled_attempt[], timestamptz, float8);

-- Notes results in the health of one destination, and opens or closes its circuit breaker. A success closes it. p_breaker.after
-- failed events in a row, or a failed probe, open it for openSecs, doubled each time up to openMaxSecs; so does a destination that
-- nobody could reach for unreachableSecs. The tenant's others are told of its first opening and of its closing. Returns opened,
-- closed, or null. An event counts once, at its first attempt: later it backs off by itself, and one poison event must not stop
-- the others. A destination that asks for a pause is healthy: it is left alone for as long as it says, or for 5 s, doubled each
-- time in a row up to 5 min.
create or replace function holdfast.relay_note_health(p_destination uuid, p_totals holdfast.attempt_totals, p_breaker jsonb)
returns text language plpgsql volatile security invoker as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_delivers constant boolean := p_totals.delivered > 0;
  v_unreachable_secs constant float8 := coalesce((p_breaker ->> 'unreachableSecs')::float8, 900);
  v_health public.destination_health;
  v_unreachable_since timestamptz;
  v_opens boolean;
  v_throttles int;
begin
  select * into v_health from public.destination_health h where h.destination_id = p_destination;
  if found and p_totals.error is null and v_health.failures = 0 and v_health.throttles = 0 and v_health.open_until is null
     and v_health.unreachable_since is null and v_health.last_success_at > v_now - interval '10 s' then
    return null; -- nothing new: saves a write
  end if;
  insert into public.destination_health (tenant_id, destination_id)
  select d.tenant_id, d.id from public.destination d where d.id = p_destination on conflict do nothing;
  select * into v_health from public.destination_health h where h.destination_id = p_destination for no key update;
  if not found then
    return null; -- deleted meanwhile
  end if;
  v_unreachable_since := case when p_totals.answered > 0 then null
    when p_totals.unreachable > 0 then coalesce(v_health.unreachable_since, v_now) else v_health.unreachable_since end;
  v_opens := not v_delivers and p_totals.failed > 0
    and (v_health.probing
         or v_health.open_until is null
            and (v_health.failures + p_totals.first_failed >= (p_breaker ->> 'after')::int
                 or v_unreachable_since <= v_now - make_interval(secs => v_unreachable_secs)));
  -- Answers that were under way when the pause began count with it.
  v_throttles := v_health.throttles + (p_totals.throttled and coalesce(v_health.throttled_until <= v_now, true))::int;
  update public.destination_health h set
    failures = case when v_delivers then 0 else h.failures + p_totals.first_failed end,
    open_until = case when v_delivers then null
      -- 2^20 is far beyond the limit, and does not overflow.
      when v_opens then v_now + make_interval(secs => least(
        (p_breaker ->> 'openSecs')::float8 * power(2, least(h.opened, 20)), (p_breaker ->> 'openMaxSecs')::float8))
      else h.open_until end,
    opened = case when v_delivers then 0 when v_opens then h.opened + 1 else h.opened end,
    probing = h.probing and not v_delivers and p_totals.failed = 0 and not p_totals.throttled,
    unreachable_since = v_unreachable_since,
    throttles = case when p_totals.throttled then v_throttles when v_delivers then 0 else h.throttles end,
    throttled_since = case when v_delivers then null when p_totals.throttled then coalesce(h.throttled_since, v_now)
                      else h.throttled_since end,
    throttled_until = case when not p_totals.throttled then h.throttled_until
      else greatest(h.throttled_until, v_now + make_interval(
        secs => coalesce(p_totals.pause_secs, least(5 * power(2, least(v_throttles, 20) - 1), 300)))) end,
    last_error = coalesce(p_totals.error, h.last_error),
    last_failure_at = case when p_totals.error is not null then v_now else h.last_failure_at end,
    last_success_at = case when v_delivers then v_now else h.last_success_at end
  where h.destination_id = p_destination;
  if v_opens and v_health.opened = 0 then
    perform holdfast.tell_of_destination(p_destination, 'destination.disabled', 'failing',
      case when v_health.failures + p_totals.first_failed >= (p_breaker ->> 'after')::int
           then format('%s events in a row failed', v_health.failures + p_totals.first_failed)
           else format('nothing has reached it since %s', holdfast.rfc3339(v_unreachable_since)) end
      || '; it is probed from time to time');
    return 'opened';
  elsif v_delivers and v_health.open_until is not null then
    perform holdfast.tell_of_destination(p_destination, 'destination.recovered', 'answering', 'it answers again');
    return 'closed';
  end if;
  return null;
end $$;

-- {"attempts":[{"id","token","outcome","error","jitter","retryAfterSecs","pauseSecs","unreachable","status","ms"}],"unitSecs",
-- "breaker"}: settles attempts. outcome: delivered (an error says why nothing was sent); failed: due again after its backoff, or a
-- dead letter after the last attempt; throttled: the destination asked for a pause (pauseSecs, or null), and the attempt is given
-- back; rejected, a permanent rejection by a healthy destination: a dead letter; gone: disables the destination, whose row stays
-- pending. unreachable: no connection, no answer in time, or a 5xx. Only the token that holds a row settles it, within its lease: an
-- id that is missing in the answer was refused. Rows without an id come last: opened, closed, disabled (destinations), woken (other
-- rows).
create or replace function holdfast.relay_settle(p_call jsonb)
returns table (id bigint, outcome text) language plpgsql volatile security invoker set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_attempts constant holdfast.attempt_result[] := array(
    select row((a ->> 'id')::bigint, (a ->> 'token')::uuid,
               -- A relay of the release before tells a throttled attempt by its pause.
               case when a ->> 'pauseSecs' is not null then 'throttled' else a ->> 'outcome' end,
               a ->> 'error', (a ->> 'jitter')::float8, (a ->> 'retryAfterSecs')::float8, (a ->> 'pauseSecs')::float8,
               coalesce((a ->> 'unreachable')::boolean, false), (a ->> 'status')::int, (a ->> 'ms')::int)::holdfast.attempt_result
    from jsonb_array_elements(p_call -> 'attempts') a order by (a ->> 'id')::bigint);
  v_ids bigint[];
  v_outcomes text[];
  v_settled holdfast.attempt_result[];
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

-- Ends the leases of the rows of these attempts, which the caller has locked, and returns what was settled. The attempt is given
-- back where it was throttled, and the row keeps its place; and where it failed while the breaker was open, so that no outage
-- makes dead letters, and the next probe takes another row. A row that failed while a person put earlier ones before it in its
-- ordered queue waits behind them.
create or replace function holdfast.relay_end_leases(p_attempts holdfast.attempt_result[], p_now timestamptz,
  p_unit_secs float8) returns table (id bigint, outcome text, attempt holdfast.attempt_result)
language plpgsql volatile security invoker set enable_seqscan = off as $$
#variable_conflict use_column
begin
  return query
  update public.outbox o set lease_token = null, leased_until = null,
    attempts = o.attempts - a.given_back::int,
    processed_at = case when a.outcome = 'delivered' then p_now end,
    dead_lettered_at = case when a.dies then p_now end,
    last_error = coalesce(a.error, o.last_error),
    attempt_log = holdfast.with_attempt(o.attempt_log, a.attempt, p_now),
    wait_checked = o.wait_checked and not a.waits,
    next_attempt_at = case
      when a.waits then 'infinity'
      when a.outcome = 'throttled' and o.attempts = 1 then o.created_at
      when a.outcome = 'failed' and not a.given_back
        then p_now + make_interval(secs => holdfast.retry_delay_secs(o.attempts, p_unit_secs, a.jitter, a.retry_after_secs))
      else p_now end
  from (select a.*, a as attempt, r.place, r.given_back,
               a.outcome = 'rejected' or (a.outcome = 'failed' and r.was_last and not r.given_back) as dies,
               r.ordered and a.outcome in ('failed', 'throttled') and coalesce(
                 (select true from public.outbox h
                  where h.keyed and h.destination_id = r.destination_id and h.aggregate_id = r.aggregate_id
                    and h.sequence < r.sequence and holdfast.is_pending(h) limit 1), false) as waits
        from unnest(p_attempts) a
        cross join lateral (
          select r.ctid as place, r.destination_id, r.aggregate_id, r.sequence, d.ordered, r.attempts >= d.max_attempts as was_last,
                 a.outcome = 'throttled' or (a.outcome = 'failed' and coalesce(
                   (select h.open_until is not null from public.destination_health h
                    where h.destination_id = r.destination_id), false)) as given_back
          from public.outbox r
          cross join lateral (select d.ordered, d.max_attempts from public.destination d where d.id = r.destination_id offset 0) d
          -- None of these finds a row by another index than that of its key.
          where r.id = a.id and r.lease_token is not distinct from a.token
            and coalesce(r.leased_until, '-infinity') > p_now and holdfast.outbox_state(r) = 'pending'
          offset 0) r) a
  where o.ctid = a.place
  returning o.id, case when a.dies then 'dead' else a.outcome end, a.attempt;
end $$;

-- A row's last attempts with one more, of which the beginning of what was said is kept.
create or replace function holdfast.with_attempt(p_log jsonb, p_attempt holdfast.attempt_result, p_now timestamptz) returns jsonb
language sql stable as $$
  select case when jsonb_array_length(p_log) >= 20 then p_log - 0 else coalesce(p_log, '[]') end
    || jsonb_build_object('at', holdfast.rfc3339(p_now), 'status', p_attempt.status, 'ms', p_attempt.ms,
                          'said', left(p_attempt.error, 300))
$$;

-- Notes settled attempts in the health of their destinations. Returns what became of these: disabled, opened, closed.
create or replace function holdfast.relay_note_attempts(p_attempts holdfast.attempt_result[], p_breaker jsonb) returns setof text
language plpgsql volatile security invoker as $$
declare
  v_of record;
  v_change text;
begin
  for v_of in
    select o.destination_id, bool_or(a.outcome = 'gone') as gone,
      row(count(*) filter (where a.outcome in ('delivered', 'rejected'))::int,
          count(*) filter (where a.outcome = 'failed')::int,
          count(*) filter (where a.outcome = 'failed' and o.attempts = 1)::int,
          count(*) filter (where a.outcome = 'failed' and a.unreachable)::int,
          count(*) filter (where not (a.outcome = 'failed' and a.unreachable))::int,
          bool_or(a.outcome = 'throttled'), max(a.pause_secs), max(a.error) filter (where a.outcome <> 'delivered'))::holdfast.attempt_totals as totals
    from unnest(p_attempts) a
    cross join lateral (select r.destination_id, r.attempts from public.outbox r where r.id = a.id offset 0) o
    group by 1 order by 1
  loop
    if v_of.gone and holdfast.disable_destination(v_of.destination_id, 'answered 410 Gone') then
      return next 'disabled';
    end if;
    v_change := holdfast.relay_note_health(v_of.destination_id, v_of.totals, p_breaker);
    if v_change is not null then
      return next v_change;
    end if;
  end loop;
end $$;
