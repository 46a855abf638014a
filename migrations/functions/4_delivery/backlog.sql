-- {"most"}: how many rows are due and could be claimed, and the age of the oldest that was looked at: of each destination the row
-- that is due longest, and the rows counted. Looks at `most` destinations and rows in all, however much waits.
create or replace function holdfast.relay_backlog(p_call jsonb, out due bigint, out oldest_age_secs float8)
language plpgsql stable security invoker set enable_seqscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_left int := p_call ->> 'most';
  v_at uuid := '00000000-0000-0000-0000-000000000000';
  v_next record;
  v_counted record;
  v_oldest timestamptz;
begin
  due := 0;
  while v_left > 0 loop
    select o.destination_id, o.next_attempt_at into v_next from public.outbox o
    where o.destination_id > v_at and holdfast.is_pending(o)
    order by o.destination_id, o.next_attempt_at, o.id limit 1;
    exit when not found;
    v_at := v_next.destination_id;
    v_left := v_left - 1;
    continue when v_next.next_attempt_at > v_now
      or not exists (select from public.destination d left join public.destination_health h on h.destination_id = d.id
                     where d.id = v_at and d.state = 'active' and (h.open_until is null or h.open_until <= v_now));
    select count(*) as due, min(x.created_at) as oldest into v_counted
    from (select o.created_at from public.outbox o
          where o.destination_id = v_at and o.next_attempt_at <= v_now and o.lease_token is null and holdfast.is_pending(o)
          order by o.next_attempt_at, o.id limit v_left + 1) x;
    due := due + v_counted.due;
    v_left := v_left - v_counted.due;
    v_oldest := least(v_oldest, v_counted.oldest);
  end loop;
  oldest_age_secs := coalesce(extract(epoch from v_now - v_oldest), 0);
end $$;
