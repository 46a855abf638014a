-- {"table","age","limit"}: deletes up to `limit` of the oldest rows past their age (hours for keys, days for the others), and
-- returns how many. Of the outbox only delivered rows go, and those without a subscriber. Two reapers skip each other's rows.
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
