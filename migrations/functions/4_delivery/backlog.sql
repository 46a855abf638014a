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

-- {"table","age","limit"}: deletes up to `limit` of the oldest rows past their age (hours for keys, days for the others), and
-- returns how many. Of the outbox only delivered rows go, and those without a subscriber.
create or replace function holdfast.reap(p_call jsonb) returns bigint
language plpgsql volatile security invoker as $$
declare
  v_age constant int := p_call ->> 'age';
  v_limit constant bigint := p_call ->> 'limit';
  v_deleted bigint;
begin
  case p_call ->> 'table'
    when 'idempotency_key' then
      delete from public.idempotency_key where ctid = any (array(
        select ctid from public.idempotency_key where created_at < now() - make_interval(hours => v_age)
        order by created_at limit v_limit for update skip locked));
    when 'webhook_inbox' then -- each fact is stored by its own id, so a late delivery still counts once
      delete from public.webhook_inbox where ctid = any (array(
        select ctid from public.webhook_inbox where received_at < now() - make_interval(days => v_age)
        order by received_at limit v_limit for update skip locked));
    when 'inventory_snapshot' then
      delete from public.inventory_snapshot where ctid = any (array(
        select ctid from public.inventory_snapshot where snapshot_date < current_date - v_age
        order by snapshot_date limit v_limit for update skip locked));
    when 'outbox' then
      delete from public.outbox where id = any (array(
        select id from public.outbox where processed_at < now() - make_interval(days => v_age)
        order by processed_at limit v_limit for update skip locked));
  end case;
  get diagnostics v_deleted = row_count;
  return v_deleted;
end $$;
