-- {"table","age","limit"}: deletes up to `limit` of the oldest rows past their age (hours for keys, days for the others), and
-- returns how many. Of ended exceptions it deletes the bodies, of senders the secrets that they no longer sign with. Nothing that is
-- pending goes. Two reapers skip each other's rows. Each kind is found by an index by age, so a call costs what it deletes.
create or replace function holdfast.reap(p_call jsonb) returns bigint
language plpgsql volatile security invoker as $$
declare
  v_age constant int := p_call ->> 'age';
  v_days constant timestamptz := now() - make_interval(days => v_age);
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
        select ctid from public.webhook_inbox where received_at < v_days
        order by received_at limit v_limit for update skip locked));
    when 'inventory_snapshot' then
      delete from public.inventory_snapshot where ctid = any (array(
        select ctid from public.inventory_snapshot where snapshot_date < current_date - v_age
        order by snapshot_date limit v_limit for update skip locked));
    when 'outbox' then -- delivered, or without a subscriber
      delete from public.outbox where id = any (array(
        select id from public.outbox where processed_at < v_days
        order by processed_at limit v_limit for update skip locked));
    when 'outbox_dead' then
      delete from public.outbox where id = any (array(
        select id from public.outbox where dead_lettered_at < v_days
        order by dead_lettered_at limit v_limit for update skip locked));
    when 'outbox_discarded' then
      delete from public.outbox where id = any (array(
        select id from public.outbox where discarded_at < v_days
        order by discarded_at limit v_limit for update skip locked));
    when 'inbox_exception' then
      update public.inbox_exception set body = '', command = null, body_deleted_at = now() where id = any (array(
        select id from public.inbox_exception where resolved_at < v_days and body_deleted_at is null
        order by resolved_at limit v_limit for update skip locked));
    when 'destination_secret' then
      delete from public.destination_secret where ctid = any (array(
        select ctid from public.destination_secret where retires_at < v_days
        order by retires_at limit v_limit for update skip locked));
    when 'threepl_account' then -- as many rows as there are accounts
      update public.threepl_account set previous_secret = null, previous_retires_at = null where previous_retires_at < v_days;
    when 'shopify_shop' then
      update public.shopify_shop set previous_secret = null, previous_retires_at = null where previous_retires_at < v_days;
  end case;
  get diagnostics v_deleted = row_count;
  return v_deleted;
end $$;
