-- The webhook inbox: a delivery's row, its effect, and the exception for what could not be done, in one transaction. p_delivery:
-- provider, eventId, topic, and either command (what to do), fault (why it can never be processed) or neither (it does not
-- concern us). p_body: the raw bytes. Returns duplicate, processed or kept (as an exception).
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
  insert into public.webhook_inbox (provider, event_id) values (v_provider, v_event_id) on conflict do nothing;
  if not found then
    return 'duplicate';
  end if;
  v_verdict := holdfast.take_effect(null, v_provider, p_delivery, v_provider || '/' || v_event_id);
  if v_verdict.reason is null then
    return 'processed';
  end if;
  perform holdfast.keep_exception(v_verdict, p_delivery, p_body);
  return 'kept';
end $$;

-- Applies a command. p_tenant: its tenant, or null to find it. p_delivery: as of receive; with `retry` where a person asks, who
-- has seen the reason. What can be done is done, each fact once; a reason says what could not. Leaves app.tenant_id set.
create or replace function holdfast.take_effect(p_tenant uuid, p_provider text, p_delivery jsonb, p_actor text)
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
  v_id uuid;
  v_sequence bigint;
begin
  -- The setting shows rows without a tenant: after its inbox row was reaped, an event may come again and find its own.
  perform set_config('app.inbox_of_nobody', 'on', true);
  insert into public.inbox_exception as e (tenant_id, provider, event_id, topic, reason, waits_for, command, body)
  values (p_verdict.tenant_id, p_delivery ->> 'provider', p_delivery ->> 'eventId', p_delivery ->> 'topic', p_verdict.reason,
    p_verdict.waits_for, p_delivery -> 'command', p_body)
  on conflict (provider, event_id) do update
    set tenant_id = excluded.tenant_id, reason = excluded.reason, waits_for = excluded.waits_for,
        attempts = e.attempts + 1, last_tried_at = now(), resolved_at = null, resolved_by = null
  returning id into v_id;
  perform set_config('app.inbox_of_nobody', '', true);
  if p_verdict.tenant_id is not null then
    update public.tenant t set event_sequence = t.event_sequence + 1 where t.id = p_verdict.tenant_id
    returning t.event_sequence into v_sequence;
    perform holdfast.emit(p_verdict.tenant_id, array[row('inbox.exception', 'tenant', p_verdict.tenant_id, v_sequence, null,
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
    update public.inbox_exception e
    set tenant_id = p_tenant, attempts = e.attempts + 1, last_tried_at = now(), waits_for = v_verdict.waits_for,
        reason = coalesce(v_verdict.reason, e.reason),
        resolved_at = case when v_verdict.reason is null then now() end,
        resolved_by = case when v_verdict.reason is null then p_actor end
    where e.id = v_waiting.id;
  end loop;
  perform set_config('app.inbox_of_nobody', '', true);
end $$;
