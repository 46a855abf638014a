-- Returned goods that a shop has put back on the shelf: a webhook raises a question, the worker asks the shop's Admin API outside
-- any transaction, and the answer is booked: each disposition once, by its id. Lock order: question -> channel order -> positions.

-- Raises the question, or says why it cannot be asked. A question that is being asked is asked again: the answer on its way may
-- not hold the newest disposition.
create or replace function holdfast.ask_for_dispositions(p_tenant uuid, p_shop text, p_command jsonb, p_actor text)
returns holdfast.verdict
language plpgsql volatile security invoker as $$
begin
  if not exists (select from holdfast.shop_access(p_tenant, p_shop)) then
    return row(p_tenant, 'returned goods were disposed of, and without a token of this shop nobody can ask which: restock them by hand, '
      'or add a destination that pushes stock to it and retry', null)::holdfast.verdict;
  end if;
  insert into public.shopify_question as q (tenant_id, shop_domain, reverse_order_id, event_id, command)
  values (p_tenant, p_shop, p_command ->> 'reverseOrderId',
    -- A person who retries names no delivery.
    case when p_actor like 'shopify:%' then substr(p_actor, strpos(p_actor, '/') + 1) else p_command ->> 'reverseOrderId' end, p_command)
  on conflict (tenant_id, shop_domain, reverse_order_id) do update
    set event_id = excluded.event_id, command = excluded.command, attempts = 0, next_attempt_at = now(),
        lease_token = null, leased_until = null;
  return row(p_tenant, null, null)::holdfast.verdict;
end $$;

-- A shop's Admin API and a token for it, sealed as it is stored: those of a destination that pushes stock to the shop; no row where
-- there is none.
create or replace function holdfast.shop_access(p_tenant uuid, p_shop text) returns table (destination_id uuid, url text, secret text)
language sql stable security invoker as $$
  select d.id, d.url, s.secret from public.destination d
  join public.destination_secret s on s.tenant_id = d.tenant_id and s.destination_id = d.id
  where d.tenant_id = p_tenant and d.id = any (holdfast.destinations_of_shop(p_tenant, p_shop))
    and (s.retires_at is null or s.retires_at > now())
  order by s.created_at desc, d.id limit 1
$$;

-- {"limit","token","leaseSecs"}: leases questions that are due, with what is needed to ask. An attempt counts when it begins. A shop
-- that has no destination any more has no address: asking it fails.
create or replace function holdfast.claim_questions(p_call jsonb)
returns table (tenant_id uuid, shop_domain text, reverse_order_id text, attempts int, destination_id uuid, url text, secret text)
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_due record;
begin
  for v_due in
    select q.tenant_id, q.shop_domain, q.reverse_order_id, q.attempts from public.shopify_question q
    where q.next_attempt_at <= now() and (q.leased_until is null or q.leased_until < now())
    order by q.next_attempt_at limit (p_call ->> 'limit')::int for update skip locked
  loop
    update public.shopify_question q
    set attempts = v_due.attempts + 1, lease_token = (p_call ->> 'token')::uuid,
        leased_until = now() + make_interval(secs => (p_call ->> 'leaseSecs')::float8)
    where q.tenant_id = v_due.tenant_id and q.shop_domain = v_due.shop_domain and q.reverse_order_id = v_due.reverse_order_id;
    perform set_config('app.tenant_id', v_due.tenant_id::text, true);
    return query
    select v_due.tenant_id, v_due.shop_domain, v_due.reverse_order_id, v_due.attempts + 1, a.destination_id,
      coalesce(a.url, ''), coalesce(a.secret, '')
    from (values (true)) as always(holds) left join holdfast.shop_access(v_due.tenant_id, v_due.shop_domain) a on true;
  end loop;
end $$;

-- {"tenantId","shop","reverseOrderId","token", and "orderId" and "dispositions" ([{"id","lineId","qty"}]) of an answer, or "error",
-- "final", "jitter", "unitSecs", "retryAfterSecs"}: books an answer, or plans the next attempt; after the last one a person is told.
-- Returns booked, later, kept or stale (another has the question, or it was asked again).
create or replace function holdfast.settle_question(p_call jsonb) returns text
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_shop constant text := p_call ->> 'shop';
  v_question public.shopify_question;
  v_order uuid;
begin
  perform set_config('app.tenant_id', v_tenant::text, true);
  select q.* into v_question from public.shopify_question q
  where q.tenant_id = v_tenant and q.shop_domain = v_shop and q.reverse_order_id = p_call ->> 'reverseOrderId' for no key update;
  if v_question.lease_token is distinct from (p_call ->> 'token')::uuid then
    return 'stale';
  end if;
  if p_call ? 'error' and not (p_call ->> 'final')::boolean and v_question.attempts < holdfast.question_attempts() then
    update public.shopify_question q
    set lease_token = null, leased_until = null, last_error = left(p_call ->> 'error', 2000),
        next_attempt_at = now() + make_interval(secs => holdfast.retry_delay_secs(v_question.attempts,
          (p_call ->> 'unitSecs')::float8, (p_call ->> 'jitter')::float8, (p_call ->> 'retryAfterSecs')::float8))
    where q.tenant_id = v_tenant and q.shop_domain = v_shop and q.reverse_order_id = v_question.reverse_order_id;
    return 'later';
  end if;
  delete from public.shopify_question q
  where q.tenant_id = v_tenant and q.shop_domain = v_shop and q.reverse_order_id = v_question.reverse_order_id;
  if p_call ? 'error' then
    perform holdfast.keep_exception(
      row(v_tenant, left('the shop does not say which goods were disposed of: ' || (p_call ->> 'error'), 500), null)::holdfast.verdict,
      jsonb_build_object('provider', 'shopify:' || v_shop, 'eventId', v_question.event_id,
        'topic', v_question.command ->> 'do', 'command', v_question.command),
      convert_to((v_question.command -> 'order')::text, 'UTF8'));
    return 'kept';
  end if;
  v_order := holdfast.lock_channel_order(v_tenant, v_shop, p_call ->> 'orderId');
  insert into public.channel_disposition (tenant_id, channel_order_id, line_external_id, external_id, qty)
  select distinct on (d.id) v_tenant, v_order, d."lineId", d.id, d.qty
  from jsonb_to_recordset(p_call -> 'dispositions') as d(id text, "lineId" text, qty bigint) where d.qty > 0 order by d.id
  on conflict do nothing;
  perform holdfast.settle_channel_order(v_tenant, v_order, format('shopify:%s/%s', v_shop, v_question.event_id));
  return 'booked';
end $$;

-- As often as an event is sent.
create or replace function holdfast.question_attempts() returns int language sql immutable parallel safe return 12;
