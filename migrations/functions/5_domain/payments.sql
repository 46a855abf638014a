-- An invoice's state follows from its payment ledger, whatever order the lines came in.

-- What the ledger adds up to. A payment is the lines of one payment intent; those without one, by hand, are one payment. standing:
-- payments that were not wholly returned. Only lines in the invoice's currency count, but money in another one is held as well.
create or replace function holdfast.money_of_invoice(p_tenant uuid, p_invoice uuid)
returns table (paid_minor bigint, returned_minor bigint, standing_minor bigint, by_hand_minor bigint, holds_money boolean)
language sql stable security invoker as $$
  select coalesce(sum(m.paid) filter (where m.counts), 0)::bigint,
    coalesce(sum(least(m.paid, m.returned)) filter (where m.counts), 0)::bigint,
    coalesce(sum(m.paid) filter (where m.counts and m.paid > m.returned), 0)::bigint,
    coalesce(sum(m.paid) filter (where m.counts and m.payment_intent is null), 0)::bigint,
    coalesce(bool_or(m.paid > m.returned), false)
  from (
    select l.payment_intent, l.currency = i.currency as counts,
      coalesce(sum(l.amount_minor) filter (where l.kind = 'payment'), 0) as paid,
      coalesce(sum(l.amount_minor) filter (where l.kind in ('refund', 'chargeback') and l.payment_intent is not null), 0)
        as returned
    from public.payment_ledger l
    join public.invoice i on i.tenant_id = l.tenant_id and i.id = l.invoice_id
    where l.tenant_id = p_tenant and l.invoice_id = p_invoice
    group by l.payment_intent, l.currency, i.currency) m
$$;

-- What is still to be paid of an invoice that awaits payment, as the exposure counts it.
create or replace function holdfast.owed_of_invoice(p_invoice public.invoice) returns bigint language sql immutable parallel safe
return case when p_invoice.status = 'awaiting_payment'
  then greatest(0, p_invoice.total_minor - (p_invoice.paid_minor - p_invoice.refunded_minor)) else 0 end;

-- Brings an invoice, whose customer and row are locked, to what its ledger says, and tells what changed.
create or replace function holdfast.refresh_invoice(p_tenant uuid, p_invoice uuid) returns void
language plpgsql volatile security invoker as $$
declare
  v_before public.invoice;
  v_after public.invoice;
  v_money record;
  v_status text;
  v_events text[];
begin
  select i.* into v_before from public.invoice i where i.tenant_id = p_tenant and i.id = p_invoice;
  select m.* into v_money from holdfast.money_of_invoice(p_tenant, p_invoice) m;
  v_status := case
    when v_before.status = 'void' then 'void'
    when v_money.standing_minor > 0 and v_money.standing_minor >= v_before.total_minor then 'paid'
    when v_money.paid_minor > 0 and v_money.paid_minor >= v_before.total_minor and v_money.standing_minor = 0 then 'refunded'
    else 'awaiting_payment' end;
  -- One that is paid and returned at once is told as both.
  v_events := case
    when v_status = v_before.status or v_status = 'void' then '{}'
    when v_status = 'paid' then array['invoice.paid']
    when v_status = 'awaiting_payment' then array['invoice.reopened']
    when v_before.status = 'awaiting_payment' then array['invoice.paid', 'invoice.refunded']
    else array['invoice.refunded'] end;
  update public.invoice i
  set status = v_status, paid_minor = v_money.paid_minor, refunded_minor = v_money.returned_minor,
      paid_at = case when v_status in ('paid', 'refunded') then coalesce(i.paid_at, clock_timestamp()) end,
      disputed_at = case when holdfast.is_disputed(p_tenant, p_invoice) then coalesce(i.disputed_at, clock_timestamp()) end,
      event_sequence = i.event_sequence + cardinality(v_events)
  where i.tenant_id = p_tenant and i.id = p_invoice
  returning i.* into v_after;
  perform holdfast.emit(p_tenant, (
    select array_agg(row(e.type, 'invoice', p_invoice, v_before.event_sequence + e.n, v_after.customer_id,
      holdfast.invoice_data(v_after.total_minor, v_after.paid_minor, v_after.currency))::holdfast.event order by e.n)
    from unnest(v_events) with ordinality e(type, n)))
  where cardinality(v_events) > 0;
  if holdfast.owed_of_invoice(v_after) > holdfast.owed_of_invoice(v_before) then
    perform holdfast.tell_over_limit(p_tenant, v_after.customer_id);
  end if;
end $$;

-- An inquiry (warning_…) is no dispute yet.
create or replace function holdfast.is_disputed(p_tenant uuid, p_invoice uuid) returns boolean
language plpgsql stable security invoker as $$
begin
  return exists (select from public.stripe_return r
                 where r.tenant_id = p_tenant and r.invoice_id = p_invoice and r.kind = 'dispute'
                   and r.status in ('needs_response', 'under_review'));
end $$;

-- {"tenantId","invoiceId","actor","amountMinor","reference"}: a payment that did not come through Stripe; a negative amount takes
-- back one that bounced.
create or replace function holdfast.pay_invoice(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_amount constant bigint := p_call ->> 'amountMinor';
  v_reference constant text := p_call ->> 'reference';
  v_invoice public.invoice := holdfast.lock_invoice(v_tenant, (p_call ->> 'invoiceId')::uuid);
  v_money record;
  v_due bigint;
begin
  if v_invoice.id is null then
    return holdfast.refusal(404, 'not_found', 'There is no invoice with this id.');
  elsif v_invoice.status = 'void' then
    return holdfast.refusal(409, 'invoice_state', 'The invoice is void: nothing is paid on it.');
  elsif exists (select from public.payment_ledger l
                where l.tenant_id = v_tenant and l.invoice_id = v_invoice.id and l.kind = 'payment'
                  and l.reference = v_reference) then
    return holdfast.refusal(409, 'payment_exists', 'The invoice has a payment with this reference already.');
  end if;
  select m.* into v_money from holdfast.money_of_invoice(v_tenant, v_invoice.id) m;
  v_due := case when v_invoice.status = 'paid' then 0
    else greatest(0, v_invoice.total_minor - (v_money.paid_minor - v_money.returned_minor)) end;
  if v_amount > v_due then
    return holdfast.refusal(422, 'exceeds_due', format('Only %s is due (minor units).', v_due));
  elsif -v_amount > v_money.by_hand_minor then
    return holdfast.refusal(422, 'exceeds_due',
      format('Payments by hand have brought only %s (minor units).', v_money.by_hand_minor));
  end if;
  insert into public.payment_ledger (tenant_id, invoice_id, kind, reference, amount_minor, currency, actor)
  values (v_tenant, v_invoice.id, 'payment', v_reference, v_amount, v_invoice.currency, p_call ->> 'actor');
  perform holdfast.refresh_invoice(v_tenant, v_invoice.id);
  return holdfast.success(201, holdfast.invoice_document(v_tenant, v_invoice.id));
end $$;
