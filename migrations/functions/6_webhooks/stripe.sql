-- What Stripe reports of an invoice: one ledger line per fact, and a status that only rises (awaiting_payment -> paid ->
-- refunded), whatever arrived first. A full refund below the total is of a payment that did not pay the invoice: only a ledger
-- line.
-- p_command: do (payment, failure, refund, dispute), reference, paymentIntent, amountMinor, currency; optional: invoiceId; full.
-- Lock order: the payment intent's advisory lock (in take_effect) -> invoice -> inserts.
create or replace function holdfast.apply_stripe(p_tenant uuid, p_command jsonb, p_actor text) returns holdfast.verdict
language plpgsql volatile security invoker as $$
declare
  v_do constant text := p_command ->> 'do';
  v_intent constant text := p_command ->> 'paymentIntent';
  v_amount constant bigint := p_command ->> 'amountMinor';
  v_invoice public.invoice;
  v_is_new boolean;
  v_reason text;
begin
  select i.* into v_invoice from public.invoice i
  where i.tenant_id = p_tenant
    and i.id = coalesce((p_command ->> 'invoiceId')::uuid,
                        (select l.invoice_id from public.payment_ledger l
                         where l.tenant_id = p_tenant and l.payment_intent = v_intent and l.kind = 'payment' limit 1))
  for no key update;
  if not found then
    return row(p_tenant, 'there is no such invoice', null)::holdfast.verdict;
  end if;
  v_reason := holdfast.refuse_stripe(v_invoice, p_command);
  if v_reason is not null then
    return row(p_tenant, v_reason, null)::holdfast.verdict;
  end if;

  insert into public.payment_ledger (tenant_id, invoice_id, kind, reference, payment_intent, amount_minor, currency, actor)
  values (p_tenant, v_invoice.id, v_do, p_command ->> 'reference', v_intent, coalesce(v_amount, v_invoice.total_minor),
    coalesce(p_command ->> 'currency', v_invoice.currency), p_actor)
  on conflict do nothing;
  v_is_new := found;

  if v_do = 'payment' then
    if v_invoice.status = 'awaiting_payment' then
      perform holdfast.raise_invoice(v_invoice, 'paid');
    elsif v_invoice.paid_at is null then
      update public.invoice i set paid_at = clock_timestamp() where i.tenant_id = p_tenant and i.id = v_invoice.id;
    elsif v_is_new then
      v_reason := 'the invoice had been paid already, by another payment: one of the two is to be refunded';
    end if;
    perform holdfast.wake_exceptions(p_tenant, 'stripe', 'payment_intent:' || v_intent,
      jsonb_build_object('invoiceId', v_invoice.id), true, p_actor);
  elsif v_do = 'refund' and (p_command ->> 'full')::boolean and coalesce(v_amount >= v_invoice.total_minor, true) then
    if v_invoice.status <> 'refunded' then
      perform holdfast.raise_invoice(v_invoice, 'refunded');
    end if;
    if v_is_new and exists (select from public.payment_ledger l
                         where l.tenant_id = p_tenant and l.invoice_id = v_invoice.id and l.kind = 'payment'
                           and l.payment_intent <> v_intent) then
      v_reason := 'refunded, though the invoice had another payment: see whether that one is to stand';
    end if;
  elsif v_do = 'dispute' and v_is_new then
    update public.invoice i set disputed_at = coalesce(i.disputed_at, clock_timestamp())
    where i.tenant_id = p_tenant and i.id = v_invoice.id;
    v_reason := 'the payment is disputed: answer it at Stripe in time';
  end if;
  return row(p_tenant, v_reason, null)::holdfast.verdict;
end $$;

-- Why a payment or refund cannot count for this invoice, or null.
create or replace function holdfast.refuse_stripe(p_invoice public.invoice, p_command jsonb) returns text
language plpgsql stable security invoker as $$
declare
  v_do constant text := p_command ->> 'do';
  v_intent constant text := p_command ->> 'paymentIntent';
  v_amount constant bigint := p_command ->> 'amountMinor';
begin
  if v_do in ('payment', 'refund') and p_invoice.currency <> p_command ->> 'currency' then
    return format('the invoice is in %s', p_invoice.currency);
  elsif v_do = 'payment' and v_amount < p_invoice.total_minor then
    return format('%s was received of %s', v_amount, p_invoice.total_minor);
  elsif v_do = 'payment'
    and (holdfast.tenant_of_payment_intent(v_intent) <> p_invoice.tenant_id
         or exists (select from public.payment_ledger l
                    where l.tenant_id = p_invoice.tenant_id and l.kind = 'payment' and l.payment_intent = v_intent
                      and l.invoice_id <> p_invoice.id)) then
    return 'this payment has paid another invoice already';
  end if;
  return null;
end $$;

-- Raises an invoice, whose row is locked, to p_status, and emits its event.
create or replace function holdfast.raise_invoice(p_invoice public.invoice, p_status text) returns void
language plpgsql volatile security invoker as $$
declare
  v_sequence bigint;
begin
  update public.invoice i
  set status = p_status, event_sequence = i.event_sequence + 1,
      paid_at = case when p_status = 'paid' then clock_timestamp() else i.paid_at end
  where i.tenant_id = p_invoice.tenant_id and i.id = p_invoice.id
  returning i.event_sequence into v_sequence;
  perform holdfast.emit(p_invoice.tenant_id, array[row(case p_status when 'paid' then 'invoice.paid' else 'invoice.refunded' end,
    'invoice', p_invoice.id, v_sequence, p_invoice.customer_id,
    format('{"totalMinor":%s,"currency":"%s"}', p_invoice.total_minor, p_invoice.currency))::holdfast.event]);
end $$;
