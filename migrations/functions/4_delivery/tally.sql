-- The slot of a minute or an hour in the ring.
create or replace function holdfast.tally_slot(p_span text, p_at timestamptz) returns int
language sql immutable parallel safe
return case p_span when 'minute' then extract(minute from p_at at time zone 'UTC')::int
                   else extract(hour from p_at at time zone 'UTC')::int end;

-- Counts settled attempts in the minute and the hour of now. The last thing that a settlement does, in the destinations' order:
-- relays that settle one destination side by side wait here for each other's commit, and for nothing else. A destination that
-- asked for a pause has not failed.
drop function if exists holdfast.tally(holdfast.settled_attempt[]);

create or replace function holdfast.tally(p_attempts holdfast.attempt_result[]) returns void
language sql volatile security invoker as $$
  insert into public.delivery_tally as t (tenant_id, destination_id, span, slot, at, delivered, failed)
  select q.tenant_id, q.destination_id, s.span,
    holdfast.tally_slot(s.span, s.at), s.at, q.delivered, q.failed
  from (
    select o.tenant_id, o.destination_id,
      count(*) filter (where a.outcome = 'delivered') as delivered,
      count(*) filter (where a.outcome not in ('delivered', 'throttled')) as failed
    from unnest(p_attempts) a
    cross join lateral (select r.tenant_id, r.destination_id from public.outbox r where r.id = a.id offset 0) o
    group by o.tenant_id, o.destination_id) q
  cross join (select v.span, date_trunc(v.span, clock_timestamp(), 'UTC') as at from (values ('minute'), ('hour')) v(span)) s
  where q.delivered + q.failed > 0
  order by q.destination_id, s.span
  on conflict (destination_id, span, slot) do update set
    delivered = excluded.delivered + case when t.at = excluded.at then t.delivered else 0 end,
    failed = excluded.failed + case when t.at = excluded.at then t.failed else 0 end, at = excluded.at
  where t.at <= excluded.at
$$;
