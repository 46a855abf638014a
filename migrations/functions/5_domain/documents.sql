-- The only renderers of orders, SKUs, styles, customers and invoices. STABLE: a document shows the instant of the calling
-- statement, and so agrees with what that statement reads beside it (a version for the ETag); whoever has just written calls in a
-- later one. Plural forms render a page in one pass: ord is the place in the argument, and ids that do not exist are left out.
-- Look-ups are lateral and end at one row: joins may be made in another order, and with old statistics that is all orders of all customers.

-- p_lines: with the order's lines; else without that member.
drop function if exists holdfast.order_documents(uuid, uuid[]);
create or replace function holdfast.order_documents(p_tenant uuid, p_orders uuid[], p_lines boolean)
returns table (ord bigint, document text)
language sql stable security invoker as $$
  select w.ord,
    format('{"id":"%s","number":%s,"customerId":"%s","customerName":%s,"status":"%s","currency":"%s","customerPo":%s,',
      o.id, holdfast.quote(o.number), o.customer_id, holdfast.quote(c.name), o.status, o.currency,
      holdfast.quote(o.customer_po))
    || format('"shipWindowStart":%s,"shipWindowEnd":%s,"notes":%s,%s"version":%s,',
      holdfast.quote(to_char(o.ship_window_start, 'YYYY-MM-DD')),
      holdfast.quote(to_char(o.ship_window_end, 'YYYY-MM-DD')), holdfast.quote(o.notes),
      case when p_lines then '"lines":[' || coalesce(l.lines, '') || '],' end, o.version)
    || format('"createdBy":"%s","updatedBy":"%s","updatedByName":%s,"updatedAt":"%s"}',
      o.created_by, o.updated_by, holdfast.quote(u.display_name), holdfast.rfc3339(o.updated_at))
  from unnest(p_orders) with ordinality as w(id, ord)
  cross join lateral (select * from public.wholesale_order o where o.tenant_id = p_tenant and o.id = w.id limit 1) o
  cross join lateral (select c.name from public.customer c where c.tenant_id = p_tenant and c.id = o.customer_id limit 1) c
  cross join lateral (
    select u.display_name from public.app_user u where u.tenant_id = p_tenant and u.id = o.updated_by limit 1) u
  left join lateral (
    select string_agg(
      format('{"skuId":"%s","code":%s,"qty":%s,"qtyAllocated":%s,"qtyShipped":%s,"qtyInvoiced":%s,"unitPriceMinor":%s}',
        l.sku_id, holdfast.quote(s.code), l.qty, l.qty_allocated, l.qty_shipped, l.qty_invoiced, l.unit_price_minor),
      ',' order by l.line_no, s.code) as lines
    from public.order_line l
    cross join lateral (select s.code from public.sku s where s.tenant_id = p_tenant and s.id = l.sku_id limit 1) s
    where l.tenant_id = p_tenant and l.order_id = o.id and p_lines) l on true
$$;

create or replace function holdfast.order_document(p_tenant uuid, p_order uuid) returns text
language plpgsql stable security invoker as $$
begin
  return (select d.document from holdfast.order_documents(p_tenant, array[p_order], true) d);
end $$;

create or replace function holdfast.sku_documents(p_tenant uuid, p_skus uuid[])
returns table (ord bigint, document text)
language sql stable security invoker as $$
  select w.ord,
    format('{"id":"%s","code":%s,"styleId":"%s","styleName":%s,"onHand":%s,"onOrder":%s,"allocated":%s,"ats":%s}',
      s.id, holdfast.quote(s.code), s.style_id, holdfast.quote(t.name), p.on_hand, p.on_order, p.allocated,
      p.on_hand + p.on_order - p.allocated)
  from unnest(p_skus) with ordinality as w(id, ord)
  cross join lateral (select * from public.sku s where s.tenant_id = p_tenant and s.id = w.id limit 1) s
  cross join lateral (select t.name from public.style t where t.tenant_id = p_tenant and t.id = s.style_id limit 1) t
  cross join lateral (select * from public.sku_position p where p.tenant_id = p_tenant and p.sku_id = s.id limit 1) p
$$;

create or replace function holdfast.sku_document(p_tenant uuid, p_sku uuid) returns text
language plpgsql stable security invoker as $$
begin
  return (select d.document from holdfast.sku_documents(p_tenant, array[p_sku]) d);
end $$;

create or replace function holdfast.style_document(p_tenant uuid, p_style uuid) returns text
language plpgsql stable security invoker as $$
begin
  return (
    select format('{"id":"%s","name":%s,"currency":"%s","wholesaleMinor":%s,"msrpMinor":%s,"version":%s,"updatedBy":%s,',
        s.id, holdfast.quote(s.name), s.currency, s.wholesale_minor, s.msrp_minor, s.version,
        holdfast.quote(s.updated_by::text))
      || format('"updatedByName":%s,"updatedAt":"%s"}', holdfast.quote(u.display_name), holdfast.rfc3339(s.updated_at))
    from public.style s
    left join public.app_user u on u.tenant_id = p_tenant and u.id = s.updated_by
    where s.tenant_id = p_tenant and s.id = p_style);
end $$;

create or replace function holdfast.customer_documents(p_tenant uuid, p_customers uuid[])
returns table (ord bigint, document text)
language sql stable security invoker as $$
  select w.ord,
    format('{"id":"%s","name":%s,"currency":"%s","creditLimitMinor":%s,"exposureMinor":%s,"onHold":%s,"version":%s,',
      c.id, holdfast.quote(c.name), c.currency, coalesce(c.credit_limit_minor::text, 'null'),
      holdfast.exposure(p_tenant, c.id), c.on_hold::text, c.version)
    || format('"updatedBy":%s,"updatedByName":%s,"updatedAt":"%s"}', holdfast.quote(c.updated_by::text),
      holdfast.quote(u.display_name), holdfast.rfc3339(c.updated_at))
  from unnest(p_customers) with ordinality as w(id, ord)
  cross join lateral (select * from public.customer c where c.tenant_id = p_tenant and c.id = w.id limit 1) c
  left join lateral (
    select u.display_name from public.app_user u where u.tenant_id = p_tenant and u.id = c.updated_by limit 1) u on true
$$;

create or replace function holdfast.customer_document(p_tenant uuid, p_customer uuid) returns text
language plpgsql stable security invoker as $$
begin
  return (select d.document from holdfast.customer_documents(p_tenant, array[p_customer]) d);
end $$;

-- p_payments: with the ledger's lines, oldest first.
create or replace function holdfast.invoice_documents(p_tenant uuid, p_invoices uuid[], p_payments boolean)
returns table (ord bigint, document text)
language sql stable security invoker as $$
  select w.ord,
    format('{"id":"%s","orderId":%s,"customerId":"%s","status":"%s","totalMinor":%s,"paidMinor":%s,"refundedMinor":%s,',
      i.id, holdfast.quote(i.order_id::text), i.customer_id, i.status, i.total_minor, i.paid_minor, i.refunded_minor)
    || format('"disputed":%s,%s"currency":"%s","paidAt":%s,"createdAt":"%s"}', (i.disputed_at is not null)::text,
      case when p_payments then '"payments":[' || coalesce(l.lines, '') || '],' end, i.currency,
      holdfast.quote(holdfast.rfc3339(i.paid_at)), holdfast.rfc3339(i.created_at))
  from unnest(p_invoices) with ordinality as w(id, ord)
  cross join lateral (select * from public.invoice i where i.tenant_id = p_tenant and i.id = w.id limit 1) i
  left join lateral (
    select string_agg(
      format('{"id":"%s","kind":"%s","reference":%s,"amountMinor":%s,"currency":%s,"actor":%s,"at":"%s"}', l.id, l.kind,
        holdfast.quote(l.reference), l.amount_minor, holdfast.quote(l.currency), holdfast.quote(l.actor),
        holdfast.rfc3339(l.created_at)), ',' order by l.id) as lines
    from public.payment_ledger l
    where l.tenant_id = p_tenant and l.invoice_id = i.id and p_payments) l on true
$$;

create or replace function holdfast.invoice_document(p_tenant uuid, p_invoice uuid) returns text
language plpgsql stable security invoker as $$
begin
  return (select d.document from holdfast.invoice_documents(p_tenant, array[p_invoice], true) d);
end $$;
