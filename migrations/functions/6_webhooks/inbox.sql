-- The webhook inbox: a delivery's row, its effect, and the exception for what could not be done, in one transaction. p_delivery:
-- provider, eventId, topic, and either command (what to do), fault (why it can never be processed) or neither (it does not
-- concern us). p_body: the raw bytes. Returns duplicate, processed, kept (as an exception) or unclaimed (kept, and of no tenant).
--
-- The row is inserted first: a concurrent delivery of the same event waits for it, at most lock_timeout, and is then a duplicate;
-- if this one rolled back, it runs.
create or replace function holdfast.receive(p_delivery jsonb, p_body bytea) returns text
language plpgsql volatile security invoker as $$
declare
  v_provider constant text := p_delivery ->> 'provider';
  v_event_id constant text := p_delivery ->> 'eventId';
  v_verdict holdfast.verdict;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'holdfast needs READ COMMITTED, not %', current_setting('transaction_isolation')
      using errcode = 'invalid_transaction_state';
  end if;
  perform pg_advisory_xact_lock_shared(holdfast.lock_class_sender(), hashtext(v_provider));
  insert into public.webhook_inbox (provider, event_id) values (v_provider, v_event_id) on conflict do nothing;
  if not found then
    return 'duplicate';
  end if;
  v_verdict := holdfast.take_effect(null, v_provider, p_delivery, v_provider || '/' || v_event_id);
  if v_verdict.reason is not null then
    perform holdfast.keep_exception(v_verdict, p_delivery, p_body);
  end if;
  if v_provider like 'shopify:%' and v_verdict.tenant_id is not null then
    perform holdfast.note_installation(v_verdict.tenant_id, substr(v_provider, 9), p_delivery ->> 'topic');
  end if;
  return case when v_verdict.reason is null then 'processed' when v_verdict.tenant_id is null then 'unclaimed' else 'kept' end;
end $$;

-- Pushes of stock to a shop stop when it removes the app, and begin again with whatever else it sends (but not with what Shopify
-- sends on behalf of a shop that is gone). A person's own pause stays. Lock order: after exceptions, the shop, then destinations.
create or replace function holdfast.note_installation(p_tenant uuid, p_domain text, p_topic text) returns void
language plpgsql volatile security invoker as $$
declare
  v_destinations uuid[];
begin
  if p_topic = 'app/uninstalled' then
    update public.shopify_shop s set uninstalled_at = coalesce(s.uninstalled_at, now())
    where s.tenant_id = p_tenant and s.domain = p_domain;
    v_destinations := holdfast.destinations_of_shop(p_tenant, p_domain);
    perform from public.destination d
    where d.tenant_id = p_tenant and d.id = any (v_destinations) order by d.id for no key update;
    with paused as (
      update public.destination d set state = 'paused'
      where d.tenant_id = p_tenant and d.id = any (v_destinations) and d.state = 'active' returning d.id
    )
    update public.shopify_shop s set paused_destinations = s.paused_destinations || array(select p.id from paused p)
    where s.tenant_id = p_tenant and s.domain = p_domain;
  elsif p_topic not in ('shop/redact', 'customers/redact', 'customers/data_request') then
    select s.paused_destinations into v_destinations from public.shopify_shop s
    where s.tenant_id = p_tenant and s.domain = p_domain and s.uninstalled_at is not null for no key update;
    if found then
      perform from public.destination d
      where d.tenant_id = p_tenant and d.id = any (v_destinations) order by d.id for no key update;
      update public.destination d set state = 'active'
      where d.tenant_id = p_tenant and d.id = any (v_destinations) and d.state = 'paused';
      update public.shopify_shop s set uninstalled_at = null, paused_destinations = '{}'
      where s.tenant_id = p_tenant and s.domain = p_domain;
    end if;
  end if;
end $$;

-- The destinations that push to a shop: by the host of their address. One whose host is no shop's domain (a proxy
-- before it) is that of the tenant's only shop.
create or replace function holdfast.destinations_of_shop(p_tenant uuid, p_domain text) returns uuid[]
language sql stable security invoker as $$
  select array(
    select d.id from public.destination d
    cross join lateral (select split_part(split_part(split_part(lower(d.url), '://', 2), '/', 1), ':', 1) as host) u
    where d.tenant_id = p_tenant and d.kind = 'shopify_inventory'
      and (u.host = p_domain or not exists (
        select from public.shopify_shop s where s.tenant_id = p_tenant and (s.domain = u.host or s.domain <> p_domain)))
    order by d.id)
$$;

-- Applies a command, as apply_command, and says what else would mend by itself what could not be done.
create or replace function holdfast.take_effect(p_tenant uuid, p_provider text, p_delivery jsonb, p_actor text)
returns holdfast.verdict
language plpgsql volatile security invoker as $$
declare
  v_verdict holdfast.verdict;
begin
  v_verdict := holdfast.apply_command(p_tenant, p_provider, p_delivery, p_actor);
  if v_verdict.reason is not null and v_verdict.waits_for is null and p_delivery ->> 'fault' is null then
    v_verdict.waits_for := holdfast.awaited(v_verdict.tenant_id, p_provider, p_delivery -> 'command');
  end if;
  return v_verdict;
end $$;

-- What an operator would have to create for a command to be done: `account`, the sender's binding to a tenant; `sku:<code>`, the
-- first SKU that is missing; `stripe_account:<id>`, a binding of the tenant; or null.
create or replace function holdfast.awaited(p_tenant uuid, p_provider text, p_command jsonb) returns text
language plpgsql stable security invoker as $$
declare
  v_account constant text := p_command ->> 'account';
begin
  if p_tenant is null then
    return case when p_provider <> 'stripe' then 'account' end;
  elsif p_provider = 'stripe' then
    return case when v_account is not null and not exists (
        select from public.stripe_account a where a.tenant_id = p_tenant and a.id = v_account)
      then 'stripe_account:' || v_account end;
  end if;
  return (
    select 'sku:' || s.code
    from (select distinct btrim(m.sku #>> '{}') as code from jsonb_path_query(p_command, '$.**.sku') as m(sku)) s
    where s.code <> '' and not exists (select from public.sku k where k.tenant_id = p_tenant and k.code = s.code)
    order by s.code limit 1);
end $$;

-- Applies a command. p_tenant: its tenant, or null to find it. p_delivery: as of receive; with `retry` where a person asks, who
-- has seen the reason. What can be done is done, each fact once; a reason says what could not. Leaves app.tenant_id set.
create or replace function holdfast.apply_command(p_tenant uuid, p_provider text, p_delivery jsonb, p_actor text)
returns holdfast.verdict
language plpgsql volatile security invoker as $$
declare
  v_command constant jsonb := p_delivery -> 'command';
  v_do constant text := v_command ->> 'do';
  v_sender constant text := split_part(p_provider, ':', 1);
  v_account constant text := substr(p_provider, length(v_sender) + 2);
  v_intent constant text := v_command ->> 'paymentIntent';
  v_tenant uuid := p_tenant;
begin
  if v_intent is not null then
    -- A refund that names its invoice only by the payment must not look for it while that payment is being written.
    perform pg_advisory_xact_lock(hashtextextended('holdfast/payment_intent/' || v_intent, 0));
  end if;
  if v_tenant is null then
    v_tenant := case v_sender
      when 'shopify' then holdfast.tenant_of_shop(v_account)
      when '3pl' then holdfast.tenant_of_threepl_account(v_account)
      else coalesce(holdfast.tenant_of_invoice((v_command ->> 'invoiceId')::uuid), holdfast.tenant_of_payment_intent(v_intent))
    end;
  end if;
  perform set_config('app.tenant_id', coalesce(v_tenant::text, ''), true);

  if p_delivery ->> 'fault' is not null then
    return row(v_tenant, p_delivery ->> 'fault', null)::holdfast.verdict;
  elsif v_do is null then
    return row(v_tenant, null, null)::holdfast.verdict;
  elsif v_do in ('customers/redact', 'shop/redact') then
    -- The signature covers the body alone; without this a header could direct it, or any other body, at another shop.
    if lower(v_command ->> 'shopDomain') is distinct from v_account then
      return row(v_tenant, 'shop_domain is not the shop that the headers name', null)::holdfast.verdict;
    end if;
    perform holdfast.redact_exceptions(p_provider, v_command);
    return row(v_tenant, null, null)::holdfast.verdict;
  elsif v_tenant is null then
    return row(null,
      case v_sender when 'shopify' then 'no shop of ours has this domain' else 'no invoice of ours is meant' end,
      case when v_sender = 'stripe' and v_command ->> 'invoiceId' is null then 'payment_intent:' || v_intent end)
      ::holdfast.verdict;
  end if;
  case v_sender
    when 'stripe' then return holdfast.apply_stripe(v_tenant, v_command, p_actor);
    when '3pl' then
      return holdfast.apply_threepl(v_tenant, v_account, v_command || jsonb_build_object('retry', p_delivery ? 'retry'), p_actor);
    when 'shopify' then
      if v_do = 'customers/data_request' then
        -- A person answers it; a retry means that it was answered.
        return row(v_tenant, case when not p_delivery ? 'retry' then 'a customer asks for their data: answer within 30 days' end,
          null)::holdfast.verdict;
      end if;
      return holdfast.apply_shopify(v_tenant, v_account,
        v_command || case when p_delivery ? 'retry' then '{"retry":true}' else '{}' end::jsonb, p_actor);
  end case;
end $$;

create or replace function holdfast.keep_exception(p_verdict holdfast.verdict, p_delivery jsonb, p_body bytea) returns void
language plpgsql volatile security invoker as $$
declare
  -- Nobody is told of what belongs to no tenant.
  v_events constant int := case when p_verdict.tenant_id is null then 0 else 1 end;
  v_id uuid;
  v_sequence bigint;
begin
  -- The setting shows rows without a tenant: after its inbox row was reaped, an event may come again and find its own.
  perform set_config('app.inbox_of_nobody', 'on', true);
  insert into public.inbox_exception as e (tenant_id, provider, event_id, topic, reason, waits_for, command, body, event_sequence)
  values (p_verdict.tenant_id, p_delivery ->> 'provider', p_delivery ->> 'eventId', p_delivery ->> 'topic', p_verdict.reason,
    p_verdict.waits_for, p_delivery -> 'command', p_body, v_events)
  on conflict (provider, event_id) do update
    set tenant_id = excluded.tenant_id, reason = excluded.reason, waits_for = excluded.waits_for,
        attempts = e.attempts + 1, last_tried_at = now(), resolved_at = null, resolved_by = null, dismiss_reason = null,
        -- Its body may have been deleted after its end. What was erased for a person stays erased.
        body = case when e.body_deleted_at is not null and e.redacted_at is null then excluded.body else e.body end,
        command = case when e.body_deleted_at is not null and e.redacted_at is null then excluded.command else e.command end,
        body_deleted_at = null, event_sequence = e.event_sequence + v_events
  returning id, event_sequence into v_id, v_sequence;
  perform set_config('app.inbox_of_nobody', '', true);
  if p_verdict.tenant_id is not null then
    perform holdfast.emit(p_verdict.tenant_id, array[row('inbox.exception', 'inbox_exception', v_id, v_sequence, null,
      format('{"exceptionId":"%s","provider":%s,"eventId":%s,"topic":%s,"reason":%s}', v_id,
        holdfast.quote(p_delivery ->> 'provider'), holdfast.quote(p_delivery ->> 'eventId'),
        holdfast.quote(p_delivery ->> 'topic'), holdfast.quote(p_verdict.reason)))::holdfast.event]);
  end if;
end $$;

-- Retries exceptions that waited for something that has now arrived. p_nobody: also those without a tenant.
create or replace function holdfast.wake_exceptions(p_tenant uuid, p_provider text, p_waits_for text, p_more jsonb,
  p_nobody boolean, p_actor text) returns void
language plpgsql volatile security invoker as $$
declare
  v_waiting record;
  v_verdict holdfast.verdict;
begin
  if p_nobody then
    perform set_config('app.inbox_of_nobody', 'on', true);
  end if;
  for v_waiting in
    select e.id, e.provider, e.event_id, e.command || p_more as command from public.inbox_exception e
    where e.provider = p_provider and e.waits_for = p_waits_for and e.resolved_at is null
    order by e.received_at, e.id for no key update
  loop
    v_verdict := holdfast.take_effect(p_tenant, v_waiting.provider, jsonb_build_object('command', v_waiting.command),
      v_waiting.provider || '/' || v_waiting.event_id);
    perform holdfast.note_attempt(p_tenant, v_waiting.id, v_verdict, p_actor);
  end loop;
  perform set_config('app.inbox_of_nobody', '', true);
end $$;

-- {"provider"}: waits until no delivery of this sender is under way. Whoever created a SKU or bound an account, and committed that,
-- calls it in a transaction of its own: then every delivery that did not see it is kept, and wake_waiting finds it.
create or replace function holdfast.await_deliveries(p_call jsonb) returns void
language sql volatile security invoker as $$
  select pg_advisory_xact_lock(holdfast.lock_class_sender(), hashtext(p_call ->> 'provider'))
$$;

-- {"tenantId","provider","after"}: the oldest open exception of this sender whose wait an operator has ended, or null: its sender is
-- bound to the tenant, its SKU is there, the tenant is bound to the Stripe account. `after`: those up to this one were tried.
create or replace function holdfast.next_waiting(p_call jsonb) returns uuid
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_after constant uuid := p_call ->> 'after';
  v_after_at constant timestamptz := (select e.received_at from public.inbox_exception e where e.id = v_after);
begin
  return (
    select e.id from public.inbox_exception e
    cross join lateral (select split_part(e.waits_for, ':', 1) as kind, substr(e.waits_for, strpos(e.waits_for, ':') + 1) as name) w
    where e.provider = p_call ->> 'provider' and e.resolved_at is null and e.waits_for is not null
      and coalesce(e.tenant_id, v_tenant) = v_tenant
      and (v_after is null or (e.received_at, e.id) > (v_after_at, v_after))
      and case w.kind
        when 'account' then true
        when 'sku' then exists (select from public.sku k where k.tenant_id = v_tenant and k.code = w.name)
        when 'stripe_account' then exists (select from public.stripe_account a where a.tenant_id = v_tenant and a.id = w.name)
        else false end
    order by e.received_at, e.id limit 1);
end $$;

-- {"tenantId","id","actor"}: runs an exception again because what it waited for is there. Returns whether it is processed now.
-- As in retry_exception its row comes last, and a transaction of its own is needed for each.
create or replace function holdfast.wake_waiting(p_call jsonb) returns boolean
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_kept public.inbox_exception;
  v_verdict holdfast.verdict;
begin
  select e.* into v_kept from public.inbox_exception e
  where e.id = (p_call ->> 'id')::uuid and coalesce(e.tenant_id, v_tenant) = v_tenant and e.resolved_at is null;
  if not found then
    return false;
  end if;
  v_verdict := holdfast.take_effect(v_tenant, v_kept.provider, jsonb_build_object('command', v_kept.command),
    v_kept.provider || '/' || v_kept.event_id);
  perform holdfast.note_attempt(v_tenant, v_kept.id, v_verdict, p_call ->> 'actor');
  return v_verdict.reason is null;
end $$;

-- Writes down how an open exception was run again.
create or replace function holdfast.note_attempt(p_tenant uuid, p_exception uuid, p_verdict holdfast.verdict, p_actor text)
returns void
language sql volatile security invoker as $$
  update public.inbox_exception e
  set tenant_id = p_tenant, attempts = e.attempts + 1, last_tried_at = now(), waits_for = (p_verdict).waits_for,
      reason = coalesce((p_verdict).reason, e.reason),
      resolved_at = case when (p_verdict).reason is null then now() end,
      resolved_by = case when (p_verdict).reason is null then p_actor end
  where e.id = p_exception and e.resolved_at is null
$$;
