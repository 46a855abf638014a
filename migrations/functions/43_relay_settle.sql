-- The relay's side of the outbox: settle, the health of destinations, and what becomes of rows whose relay was lost.

drop function if exists holdfast.relay_settle(bigint[], uuid[], text[], text[], float8[]);
drop function if exists holdfast.disable_gone_destination(uuid);
do $$
begin
  if (select prorettype from pg_proc where oid = to_regprocedure('holdfast.disable_destination(uuid, text)')) = 'void'::regtype then
    drop function holdfast.disable_destination(uuid, text);
  end if;
end $$;

-- Gives up lost rows that have no attempt left, up to 100 at a time, and tells whether a lost row is due.
create or replace function holdfast.relay_sweep_lost(out dead_lettered int, out lost_due boolean)
language plpgsql volatile security invoker as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_ids bigint[];
begin
  v_ids := array(
    select x.id from public.outbox x join public.destination d on d.id = x.destination_id
    where x.lease_token is not null and x.leased_until <= v_now and x.attempts >= d.max_attempts
      and x.processed_at is null and x.dead_lettered_at is null and x.discarded_at is null
    order by x.id limit 100 for update of x skip locked);
  update public.outbox o set dead_lettered_at = v_now, lease_token = null, leased_until = null,
    last_error = format('The relay did not survive this event: attempt %s ended without a result, and it was the last.',
      o.attempts)
  where o.id = any (v_ids);
  get diagnostics dead_lettered = row_count;
  if dead_lettered > 0 then
    perform holdfast.wake_behind(v_ids);
  end if;
  lost_due := exists (
    select from public.outbox o join public.destination d on d.id = o.destination_id
    left join public.destination_health h on h.destination_id = d.id
    where o.lease_token is not null and o.leased_until <= v_now and o.next_attempt_at <= v_now
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
      and d.state = 'active' and o.attempts < d.max_attempts
      and (h.open_until is null or h.open_until <= v_now));
end $$;

drop function if exists holdfast.wake_behind(bigint[]);

-- Wakes whoever stood behind these rows at an ordered destination. Returns whether somebody may have.
create or replace function holdfast.wake_behind(p_ids bigint[]) returns boolean
language plpgsql volatile security invoker as $$
declare
  v_destinations uuid[];
  v_aggregates uuid[];
begin
  select array_agg(q.destination_id), array_agg(q.aggregate_id) into v_destinations, v_aggregates
  from (select distinct o.destination_id, o.aggregate_id from public.outbox o where o.id = any (p_ids) and o.keyed) q;
  if v_destinations is not null then
    perform holdfast.wake_next(v_destinations, v_aggregates);
  end if;
  return v_destinations is not null;
end $$;

-- Wakes heads of ordered queues that nobody woke: their event was written while the one before was being settled, and
-- neither transaction saw the other. Walks up to p_steps queues on from (p_destination, p_aggregate) and tells how far it
-- came; null at the end.
create or replace function holdfast.relay_sweep_order(inout destination_id uuid, inout aggregate_id uuid, p_steps int,
  out woken int) language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_destinations uuid[] := '{}';
  v_aggregates uuid[] := '{}';
  v_head record;
begin
  woken := 0;
  for v_step in 1 .. p_steps loop
    select o.destination_id, o.aggregate_id, o.next_attempt_at into v_head from public.outbox o
    where o.keyed and (o.destination_id, o.aggregate_id) > ($1, $2)
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
    order by o.destination_id, o.aggregate_id, o.sequence limit 1;
    $1 := v_head.destination_id;
    $2 := v_head.aggregate_id;
    exit when not found;
    if v_head.next_attempt_at = 'infinity' then
      v_destinations := v_destinations || v_head.destination_id;
      v_aggregates := v_aggregates || v_head.aggregate_id;
      woken := woken + 1;
    end if;
  end loop;
  if woken > 0 then
    perform holdfast.wake_next(v_destinations, v_aggregates);
  end if;
end $$;

-- Switches a destination off because its server said that it is gone, and tells its tenant's others. Its events wait.
-- Returns whether it was on until now.
create or replace function holdfast.disable_destination(p_destination uuid, p_reason text) returns boolean
language plpgsql volatile security invoker as $$
begin
  update public.destination d set state = 'disabled' where d.id = p_destination and d.state <> 'disabled';
  if not found then
    return false; -- another delivery was told the same
  end if;
  -- When a person switches it on again, it begins anew.
  update public.destination_health h set failures = 0, open_until = null, opened = 0, probing = false
  where h.destination_id = p_destination;
  perform holdfast.tell_of_destination(p_destination, 'destination.disabled', 'gone', p_reason);
  return true;
end $$;

-- What a settlement tells of one destination's health. A success closes its breaker; p_after events in a row that failed,
-- or a probe that did, open it for a pause that doubles up to its limit. Its first opening and its closing are told to the
-- tenant's others. Returns opened, closed, or null.
--
-- An event counts once, at its first attempt: when it fails again it backs off by itself, and one poisoned event must not
-- stop the others. Who asks to be left alone for a while (p_pause_secs) is well: that is no failure of the destination's.
create or replace function holdfast.relay_note_health(p_tenant uuid, p_destination uuid, p_delivered int, p_failed int,
  p_first_failed int, p_error text, p_pause_secs float8, p_after int, p_open_secs float8, p_open_max_secs float8) returns text
language plpgsql volatile security invoker as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_health public.destination_health;
  v_opens boolean;
begin
  select * into v_health from public.destination_health h where h.destination_id = p_destination;
  if found and p_failed = 0 and p_error is null and p_pause_secs is null and v_health.failures = 0
     and v_health.open_until is null and v_health.last_success_at > v_now - interval '10 s' then
    return null; -- nothing new, and not worth a write
  end if;
  insert into public.destination_health (tenant_id, destination_id) values (p_tenant, p_destination) on conflict do nothing;
  select * into v_health from public.destination_health h where h.destination_id = p_destination for no key update;
  v_opens := p_delivered = 0 and p_failed > 0
    and (v_health.probing or (v_health.open_until is null and v_health.failures + p_first_failed >= p_after));
  update public.destination_health h set
    failures = case when p_delivered > 0 then 0 else h.failures + p_first_failed end,
    open_until = case when p_delivered > 0 then null
      when v_opens then v_now + make_interval(secs => least(p_open_secs * power(2, least(h.opened, 20)), p_open_max_secs))
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

-- Settles a set of attempts. p_outcomes: 'delivered'; 'failed', next due in p_delay_secs or, with no attempt left,
-- a dead letter; 'rejected', a dead letter at once, from a destination that is well; 'gone', which disables the
-- destination and leaves the row pending, due when it is enabled again. p_pause_secs: how long the whole destination
-- asked to be left alone. A row is settled only by the token that holds it, and within the lease: what is not returned
-- was refused. The last rows of the answer, without id, tell of destinations (opened and closed breakers, disabled) and
-- whether others were woken.
create or replace function holdfast.relay_settle(p_ids bigint[], p_tokens uuid[], p_outcomes text[], p_errors text[],
  p_delay_secs float8[], p_pause_secs float8[], p_after int, p_open_secs float8, p_open_max_secs float8)
returns table (id bigint, outcome text) language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_ids bigint[];
  v_outcomes text[];
  v_of record;
begin
  -- In the order of their ids, like everyone who locks several rows.
  perform from public.outbox o where o.id = any (p_ids) order by o.id for no key update;
  v_now := clock_timestamp();
  with settled as (
    update public.outbox o set lease_token = null, leased_until = null,
      processed_at = case when r.outcome = 'delivered' then v_now end,
      dead_lettered_at = case when r.outcome = 'rejected' or (r.outcome = 'failed' and o.attempts >= d.max_attempts)
        then v_now end,
      last_error = coalesce(r.error, o.last_error),
      next_attempt_at = v_now + make_interval(secs => coalesce(r.delay_secs, 0))
    from unnest(p_ids, p_tokens, p_outcomes, p_errors, p_delay_secs) r(id, token, outcome, error, delay_secs),
         public.destination d
    where o.id = any (p_ids) and o.id = r.id and d.id = o.destination_id
      and o.lease_token = r.token and o.leased_until > v_now
      and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
    returning o.id, case when o.dead_lettered_at is not null then 'dead' else r.outcome end as outcome)
  select array_agg(s.id), array_agg(s.outcome) into v_ids, v_outcomes from settled s;
  if v_ids is null then
    return;
  end if;
  return query select s.id, s.outcome from unnest(v_ids, v_outcomes) s(id, outcome);
  for v_of in
    select o.tenant_id, o.destination_id,
      count(*) filter (where r.outcome in ('delivered', 'rejected'))::int as delivered,
      count(*) filter (where r.outcome = 'failed' and r.pause_secs is null)::int as failed,
      count(*) filter (where r.outcome = 'failed' and r.pause_secs is null and o.attempts = 1)::int as first_failed,
      bool_or(r.outcome = 'gone') as gone, max(r.error) as error, max(r.pause_secs) as pause_secs
    from unnest(p_ids, p_outcomes, p_errors, p_pause_secs) r(id, outcome, error, pause_secs)
    join public.outbox o on o.id = r.id
    where r.id = any (v_ids)
    group by 1, 2 order by 2
  loop
    id := null;
    if v_of.gone and holdfast.disable_destination(v_of.destination_id, 'answered 410 Gone') then
      outcome := 'disabled';
      return next;
    end if;
    outcome := holdfast.relay_note_health(v_of.tenant_id, v_of.destination_id, v_of.delivered, v_of.failed, v_of.first_failed,
      v_of.error, v_of.pause_secs, p_after, p_open_secs, p_open_max_secs);
    if outcome is not null then
      return next;
    end if;
  end loop;
  if holdfast.wake_behind(v_ids) then
    id := null;
    outcome := 'woken';
    return next;
  end if;
end $$;

-- What waits: rows that are due and could be claimed, counted up to p_most, and how long the oldest has been due.
-- By the index whatever the statistics say: while they are young, a scan of the whole outbox looks cheap, and is made once
-- for each destination.
create or replace function holdfast.relay_backlog(p_most int, out due bigint, out oldest_age_secs float8)
language sql stable security invoker set enable_seqscan = off as $$
  select coalesce(least(sum(q.due), p_most), 0), coalesce(max(q.age_secs), 0)
  from public.destination d
  left join public.destination_health h on h.destination_id = d.id
  cross join lateral (
    select count(*) as due, extract(epoch from clock_timestamp() - min(x.created_at))::float8 as age_secs
    from (select o.created_at from public.outbox o
          where o.destination_id = d.id and o.next_attempt_at <= clock_timestamp() and o.lease_token is null
            and o.processed_at is null and o.dead_lettered_at is null and o.discarded_at is null
          order by o.next_attempt_at, o.id limit p_most) x) q
  where d.state = 'active' and (h.open_until is null or h.open_until <= clock_timestamp())
$$;
