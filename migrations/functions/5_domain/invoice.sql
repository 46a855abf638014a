-- {"tenantId","orderId","match"}: a pro-forma invoice for what an order holds or has shipped and was not invoiced yet. The exposure stays
-- the same: units move from its promised to its invoiced part in one transaction. Lock order: order -> inserts.
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
  elsif v_order_row.status = 'cancelled' then
    return holdfast.refusal(409, 'order_not_open', 'The order is cancelled; it cannot be invoiced.');
  end if;
  v_refused := holdfast.refuse_version(v_tenant, v_order, nullif(p_call -> 'match', 'null'));
  if v_refused.status is not null then
    return v_refused;
  end if;
  select sum((l.qty_allocated + l.qty_shipped - l.qty_invoiced) * l.unit_price_minor::numeric) into v_total
  from public.order_line l
  where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_allocated + l.qty_shipped > l.qty_invoiced;
  if v_total is null then
    return holdfast.refusal(422, 'nothing_to_invoice', 'All that the order holds is invoiced already; allocate first.');
  end if;
  insert into public.invoice (tenant_id, id, customer_id, order_id, total_minor, currency, event_sequence)
  values (v_tenant, v_invoice, v_order_row.customer_id, v_order, v_total, v_order_row.currency, 1);
  insert into public.invoice_line (tenant_id, invoice_id, sku_id, qty, unit_price_minor)
  select v_tenant, v_invoice, l.sku_id, l.qty_allocated + l.qty_shipped - l.qty_invoiced, l.unit_price_minor
  from public.order_line l
  where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_allocated + l.qty_shipped > l.qty_invoiced;
  update public.order_line l set qty_invoiced = l.qty_allocated + l.qty_shipped
  where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_allocated + l.qty_shipped > l.qty_invoiced;
  perform holdfast.emit(v_tenant, array[row('invoice.created', 'invoice', v_invoice, 1, v_order_row.customer_id,
    format('{"totalMinor":%s,"currency":"%s"}', v_total, v_order_row.currency))::holdfast.event]);
  return holdfast.success(201,
    format('{"id":"%s","orderId":"%s","totalMinor":%s,"currency":"%s","status":"awaiting_payment"}',
           v_invoice, v_order, v_total, v_order_row.currency),
    null, '/invoices/' || v_invoice);
end $$;
