-- {"tenantId","userId","orderId","limit","after"}: who did what to an order, oldest first: what was saved, from order_change; the moves of
-- stock, from allocation_ledger; its invoices and their payments. `after` is the last item's id.
create or replace function holdfast.order_history(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_order constant uuid := p_read ->> 'orderId';
  v_limit constant int := p_read ->> 'limit';
  v_after constant text := p_read ->> 'after';
  v_page record;
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  elsif not exists (select from public.wholesale_order o where o.tenant_id = v_tenant and o.id = v_order) then
    return holdfast.decided('not_found');
  end if;
  with happened as materialized (
    select h.* from holdfast.history_of(v_tenant, v_order) h
  ), last_seen as materialized (
    select h.at, h.id from happened h where h.id = v_after
  ), shown as (
    select h.id, row_number() over (order by h.at, h.id) as place,
      format('{"id":"%s","at":"%s","action":"%s","by":%s,"byName":%s,"details":%s}', h.id, holdfast.rfc3339(h.at), h.action,
        holdfast.quote(h.actor), holdfast.quote(holdfast.actor_name(v_tenant, h.actor)), h.details) as document
    from happened h
    where v_after is null or (h.at, h.id) > (select l.at, l.id from last_seen l)
    order by h.at, h.id limit v_limit + 1
  )
  select v_after is not null and not exists (select from last_seen) as unknown_after,
    array_agg(s.id order by s.place) as ids, array_agg(s.document order by s.place) as documents
  into v_page from shown s;
  if v_page.unknown_after then
    return holdfast.decided('unknown_after');
  end if;
  return holdfast.document_answer(holdfast.page(v_page.ids, v_page.documents, v_limit));
end $$;

-- All that is kept of what happened to an order. The letter before an id says where it stands.
create or replace function holdfast.history_of(p_tenant uuid, p_order uuid)
returns table (id text, at timestamptz, action text, actor text, details jsonb)
language sql stable security invoker as $$
  select 'c' || c.id, c.at, c.action, c.actor, c.details
  from public.order_change c where c.tenant_id = p_tenant and c.order_id = p_order
  union all
  select 'a' || l.id, l.created_at,
    case l.entry_type when 'allocate' then 'allocated' when 'ship' then 'allocated_units_shipped' else 'released' end, l.actor,
    jsonb_build_object('skuId', l.sku_id, 'code', k.code, 'qty', abs(l.qty))
  from public.allocation_ledger l join public.sku k on k.tenant_id = p_tenant and k.id = l.sku_id
  where l.tenant_id = p_tenant and l.order_id = p_order
  union all
  select 'i' || i.id, i.created_at, 'invoiced', coalesce(i.created_by, 'unknown'),
    jsonb_build_object('invoiceId', i.id, 'totalMinor', i.total_minor, 'currency', i.currency)
  from public.invoice i where i.tenant_id = p_tenant and i.order_id = p_order
  union all
  select 'v' || i.id, i.voided_at, 'invoice_voided', coalesce(i.voided_by, 'unknown'),
    jsonb_build_object('invoiceId', i.id, 'reason', i.void_reason)
  from public.invoice i where i.tenant_id = p_tenant and i.order_id = p_order and i.voided_at is not null
  union all
  select 'p' || p.id, p.created_at, p.kind, p.actor,
    jsonb_build_object('invoiceId', p.invoice_id, 'reference', p.reference, 'amountMinor', p.amount_minor, 'currency', p.currency)
  from public.payment_ledger p join public.invoice i on i.tenant_id = p_tenant and i.id = p.invoice_id
  where p.tenant_id = p_tenant and i.order_id = p_order
$$;

-- The name of an actor that is a user (user:<id>), or of the user whom an API key acts as (api_key:<id>); null for a sender.
create or replace function holdfast.actor_name(p_tenant uuid, p_actor text) returns text
language plpgsql stable security invoker as $$
begin
  if p_actor like 'user:%' then
    return (select u.display_name from public.app_user u
            where u.tenant_id = p_tenant and u.id::text = substr(p_actor, 6));
  elsif p_actor like 'api_key:%' then
    return (select u.display_name from public.api_key k
            join public.app_user u on u.tenant_id = k.tenant_id and u.id = k.app_user_id
            where k.tenant_id = p_tenant and k.id::text = substr(p_actor, 9));
  end if;
  return null;
end $$;
