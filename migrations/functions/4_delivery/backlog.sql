-- {"most"}: how many rows are due and could be claimed, counted up to `most`, and the age of the oldest. enable_seqscan is off
-- because young statistics make a scan of the whole outbox look cheap, and it would run once for each destination.
create or replace function holdfast.relay_backlog(p_call jsonb, out due bigint, out oldest_age_secs float8)
language sql stable security invoker set enable_seqscan = off as $$
  select coalesce(least(sum(q.due), (p_call ->> 'most')::int), 0), coalesce(max(q.age_secs), 0)
  from public.destination d
  left join public.destination_health h on h.destination_id = d.id
  cross join lateral (
    select count(*) as due, extract(epoch from clock_timestamp() - min(x.created_at))::float8 as age_secs
    from (select o.created_at from public.outbox o
          where o.destination_id = d.id and o.next_attempt_at <= clock_timestamp() and o.lease_token is null
            and holdfast.is_pending(o)
          order by o.next_attempt_at, o.id limit (p_call ->> 'most')::int) x) q
  where d.state = 'active' and (h.open_until is null or h.open_until <= clock_timestamp())
$$;
