-- Goods left for a wholesale order. That they are gone is a fact, whatever the books had allowed.
create or replace function holdfast.apply_shipment(p_tenant uuid, p_account text, p_command jsonb, p_actor text)
returns holdfast.verdict
language plpgsql volatile security invoker as $$
declare
  v_order constant uuid := p_command ->> 'orderId';
  v_found record;
  v_new record;
  v_due record;
begin
  select o.customer_id into v_found from public.wholesale_order o where o.tenant_id = p_tenant and o.id = v_order;
  if not found then
    return row(p_tenant, 'there is no such order', null)::holdfast.verdict;
  end if;
  -- What was shipped without having been allocated raises the exposure.
  perform from public.customer c
  where c.tenant_id = p_tenant and c.id = v_found.customer_id and c.credit_limit_minor is not null for no key update;
  select o.customer_id, o.status into v_found from public.wholesale_order o
  where o.tenant_id = p_tenant and o.id = v_order for no key update;
  select t.skus, t.qtys, t.reason into v_new from holdfast.take_lines(p_tenant, p_account, 'order.shipped', p_command) t;
  perform from public.sku_position p
  where p.tenant_id = p_tenant and p.sku_id = any (v_new.skus) order by p.sku_id for no key update;

  -- Of each SKU: units held for the order; those beyond, as far as the line is open, and further; of what was not held, that
  -- which others are promised stays in the books as owed.
  with line as (
    select n.sku_id, n.qty, least(n.qty, coalesce(l.qty_allocated, 0)) as held,
      coalesce(l.qty - l.qty_allocated - l.qty_shipped, 0) as open, p.on_hand + p.on_order - p.allocated as ats
    from unnest(v_new.skus, v_new.qtys) as n(sku_id, qty)
    join public.sku_position p on p.tenant_id = p_tenant and p.sku_id = n.sku_id
    left join public.order_line l on l.tenant_id = p_tenant and l.order_id = v_order and l.sku_id = n.sku_id
  ), owing as (
    select *, greatest(0, qty - held - ats) as owed from line
  )
  select array_agg(o.sku_id order by o.sku_id) as skus, array_agg(-o.held order by o.sku_id) as allocated,
    array_agg(row(o.sku_id, o.owed - o.qty, 0, -o.held, 'ship')::holdfast.position_change order by o.sku_id) as changes,
    array_agg(o.owed order by o.sku_id) as owed, array_agg(0::bigint order by o.sku_id) as nothing,
    array_agg(least(o.qty - o.held, o.open) order by o.sku_id) as unheld,
    string_agg(k.code, ', ' order by k.code) filter (where o.qty - o.held > o.open) as beyond
  into v_due from owing o join public.sku k on k.tenant_id = p_tenant and k.id = o.sku_id;
  if v_due.skus is not null then
    update public.order_line l
    set qty_allocated = l.qty_allocated + d.allocated, qty_shipped = l.qty_shipped - d.allocated + d.unheld
    from unnest(v_due.skus, v_due.allocated, v_due.unheld) as d(sku_id, allocated, unheld)
    where l.tenant_id = p_tenant and l.order_id = v_order and l.sku_id = d.sku_id;
    perform holdfast.shift(p_tenant, v_due.changes, v_order, 'wholesale', 'ship', p_actor);
    perform holdfast.add_shortfall(p_tenant, v_due.skus, v_due.owed, v_due.owed, v_due.nothing, 'order.shipped');
    perform holdfast.end_if_shipped(p_tenant, v_order);
  end if;
  return row(p_tenant, nullif(concat_ws('; ', v_new.reason, 'shipped beyond what was ordered: ' || v_due.beyond,
    case when v_found.status = 'cancelled' and v_due.skus is not null then 'the order had been cancelled' end), ''),
    null)::holdfast.verdict;
end $$;

-- Ends an open order, whose row is locked, when all of it is shipped.
create or replace function holdfast.end_if_shipped(p_tenant uuid, p_order uuid) returns void
language plpgsql volatile security invoker as $$
declare
  v_ended record;
begin
  update public.wholesale_order o set status = 'shipped', event_sequence = o.event_sequence + 1
  where o.tenant_id = p_tenant and o.id = p_order and o.status = 'open'
    and not exists (select from public.order_line l
                    where l.tenant_id = p_tenant and l.order_id = p_order and l.qty_shipped < l.qty)
  returning o.version, o.event_sequence, o.customer_id into v_ended;
  if found then
    perform holdfast.emit(p_tenant, array[row('order.shipped', 'wholesale_order', p_order, v_ended.event_sequence,
      v_ended.customer_id, format('{"version":%s,"changed":["status"]}', v_ended.version))::holdfast.event]);
  end if;
end $$;
