-- {"tenantId","orderId","actor","match"}: a pro-forma invoice for what an order holds or has shipped and was not invoiced yet. The
-- exposure stays the same: units move from its promised to its invoiced part in one transaction. Lock order: order -> inserts.
create or replace function holdfast.invoice_order(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_order constant uuid := p_call ->> 'orderId';
  v_invoice constant uuid := gen_random_uuid();
  v_order_row record;
  v_total numeric;
  v_refused holdfast.outcome;
begin
  select o.customer_id, o.status, o.currency into v_order_row from public.wholesale_order o
  where o.tenant_id = v_tenant and o.id = v_order for no key update;
  if not found then
    return holdfast.refusal(404, 'order_not_found', 'There is no order with this id.');
  elsif v_order_row.status = 'cancelled'
    and not exists (select from public.order_line l
                    where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_shipped > l.qty_invoiced) then
    return holdfast.refusal(409, 'order_not_open', 'The order is cancelled, and nothing shipped of it is left to invoice.');
  end if;
  v_refused := holdfast.refuse_version(v_tenant, v_order, nullif(p_call -> 'match', 'null'));
  if v_refused.status is not null then
    return v_refused;
  end if;
  select coalesce(sum((l.qty_allocated + l.qty_shipped - l.qty_invoiced) * l.unit_price_minor::numeric), 0) into v_total
  from public.order_line l
  where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_allocated + l.qty_shipped > l.qty_invoiced;
  if v_total = 0 then
    return holdfast.refusal(422, 'nothing_to_invoice',
      'All that the order holds is invoiced already, or worth nothing; allocate first.');
  end if;
  insert into public.invoice (tenant_id, id, customer_id, order_id, total_minor, currency, event_sequence, created_by)
  values (v_tenant, v_invoice, v_order_row.customer_id, v_order, v_total, v_order_row.currency, 1, p_call ->> 'actor');
  insert into public.invoice_line (tenant_id, invoice_id, sku_id, qty, unit_price_minor)
  select v_tenant, v_invoice, l.sku_id, l.qty_allocated + l.qty_shipped - l.qty_invoiced, l.unit_price_minor
  from public.order_line l
  where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_allocated + l.qty_shipped > l.qty_invoiced;
  update public.order_line l set qty_invoiced = l.qty_allocated + l.qty_shipped
  where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_allocated + l.qty_shipped > l.qty_invoiced;
  perform holdfast.emit(v_tenant, array[row('invoice.created', 'invoice', v_invoice, 1, v_order_row.customer_id,
    holdfast.invoice_data(v_total, 0, v_order_row.currency))::holdfast.event]);
  return holdfast.success(201,
    format('{"id":"%s","orderId":"%s","totalMinor":%s,"currency":"%s","status":"awaiting_payment"}',
           v_invoice, v_order, v_total, v_order_row.currency),
    null, '/invoices/' || v_invoice);
end $$;

-- The data of every event of an invoice.
create or replace function holdfast.invoice_data(p_total_minor numeric, p_paid_minor numeric, p_currency text) returns text
language sql immutable parallel safe
return format('{"totalMinor":%s,"paidMinor":%s,"currency":"%s"}', p_total_minor, p_paid_minor, p_currency);

-- Locks an invoice after its customer: whatever is done to it may raise the exposure. Null where there is none.
create or replace function holdfast.lock_invoice(p_tenant uuid, p_invoice uuid) returns public.invoice
language plpgsql volatile security invoker as $$
declare
  v_invoice public.invoice;
begin
  select i.* into v_invoice from public.invoice i where i.tenant_id = p_tenant and i.id = p_invoice;
  if found then
    perform holdfast.lock_customer(p_tenant, v_invoice.customer_id);
    select i.* into v_invoice from public.invoice i where i.tenant_id = p_tenant and i.id = p_invoice for no key update;
  end if;
  return v_invoice;
end $$;

-- {"tenantId","invoiceId","actor","reason"}: takes an invoice back for good while it holds no money; its units can be invoiced
-- again. Lock order: customer -> invoice -> order.
create or replace function holdfast.void_invoice(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_invoice public.invoice := holdfast.lock_invoice(v_tenant, (p_call ->> 'invoiceId')::uuid);
begin
  if v_invoice.id is null then
    return holdfast.refusal(404, 'not_found', 'There is no invoice with this id.');
  elsif v_invoice.status = 'void' then
    return holdfast.refusal(409, 'invoice_state', 'The invoice is void already.');
  elsif (select m.holds_money from holdfast.money_of_invoice(v_tenant, v_invoice.id) m) then
    return holdfast.refusal(409, 'invoice_state', 'Money was received for the invoice: return it first.');
  end if;
  perform from public.wholesale_order o
  where o.tenant_id = v_tenant and o.id = v_invoice.order_id for no key update;
  update public.order_line l set qty_invoiced = greatest(0, l.qty_invoiced - x.qty)
  from public.invoice_line x
  where x.tenant_id = v_tenant and x.invoice_id = v_invoice.id
    and l.tenant_id = v_tenant and l.order_id = v_invoice.order_id and l.sku_id = x.sku_id;
  update public.invoice i
  set status = 'void', voided_at = clock_timestamp(), voided_by = p_call ->> 'actor', void_reason = p_call ->> 'reason',
      event_sequence = i.event_sequence + 1
  where i.tenant_id = v_tenant and i.id = v_invoice.id
  returning i.* into v_invoice;
  perform holdfast.emit(v_tenant, array[row('invoice.voided', 'invoice', v_invoice.id, v_invoice.event_sequence,
    v_invoice.customer_id,
    holdfast.invoice_data(v_invoice.total_minor, v_invoice.paid_minor, v_invoice.currency))::holdfast.event]);
  perform holdfast.tell_over_limit(v_tenant, v_invoice.customer_id);
  return holdfast.success(200, holdfast.invoice_document(v_tenant, v_invoice.id));
end $$;
