-- A shipment of a wholesale order is a fact: it is booked even where the order did not hold the units.
create or replace function holdfast.apply_shipment(p_tenant uuid, p_account text, p_command jsonb, p_actor text)
returns holdfast.verdict
language plpgsql volatile security invoker as $$
declare
  v_order constant uuid := p_command ->> 'orderId';
  v_order_row record;
  v_taken record;
  v_booking record;
begin
  select o.customer_id into v_order_row from public.wholesale_order o where o.tenant_id = p_tenant and o.id = v_order;
  if not found then
    return row(p_tenant, 'there is no such order', null)::holdfast.verdict;
  end if;
  -- Shipped units that were not allocated raise the exposure.
  perform holdfast.lock_customer(p_tenant, v_order_row.customer_id);
  select o.customer_id, o.status into v_order_row from public.wholesale_order o
  where o.tenant_id = p_tenant and o.id = v_order for no key update;
  select t.skus, t.qtys, t.reason into v_taken from holdfast.take_lines(p_tenant, p_account, 'order.shipped', p_command) t;
  perform from public.sku_position p
  where p.tenant_id = p_tenant and p.sku_id = any (v_taken.skus) order by p.sku_id for no key update;

  -- Per SKU: held, shipped from what the order holds; open, units of the line that are neither allocated nor shipped; owed,
  -- shipped units that were not held and that ATS does not cover, since others are promised them.
  with line as (
    select n.sku_id, n.qty, least(n.qty, coalesce(l.qty_allocated, 0)) as held,
      coalesce(l.qty - l.qty_allocated - l.qty_shipped, 0) as open, p.on_hand + p.on_order - p.allocated as ats
    from unnest(v_taken.skus, v_taken.qtys) as n(sku_id, qty)
    join public.sku_position p on p.tenant_id = p_tenant and p.sku_id = n.sku_id
    left join public.order_line l on l.tenant_id = p_tenant and l.order_id = v_order and l.sku_id = n.sku_id
  ), owing as (
    select *, greatest(0, qty - held - ats) as owed from line
  )
  select array_agg(o.sku_id order by o.sku_id) as skus, array_agg(-o.held order by o.sku_id) as allocated,
    array_agg(row(o.sku_id, o.owed - o.qty, 0, -o.held, 'ship')::holdfast.position_change order by o.sku_id) as changes,
    array_agg(o.owed order by o.sku_id) as owed, array_agg(0::bigint order by o.sku_id) as zeros,
    array_agg(least(o.qty - o.held, o.open) order by o.sku_id) as unheld,
    string_agg(k.code, ', ' order by k.code) filter (where o.qty - o.held > o.open) as beyond
  into v_booking from owing o join public.sku k on k.tenant_id = p_tenant and k.id = o.sku_id;
  if v_booking.skus is not null then
    update public.order_line l
    set qty_allocated = l.qty_allocated + d.allocated, qty_shipped = l.qty_shipped - d.allocated + d.unheld
    from unnest(v_booking.skus, v_booking.allocated, v_booking.unheld) as d(sku_id, allocated, unheld)
    where l.tenant_id = p_tenant and l.order_id = v_order and l.sku_id = d.sku_id;
    perform holdfast.shift(p_tenant, v_booking.changes, v_order, 'wholesale', 'ship', p_actor);
    perform holdfast.add_shortfall(p_tenant, v_booking.skus, v_booking.owed, v_booking.owed, v_booking.zeros, 'order.shipped');
    perform holdfast.note_order_change(p_tenant, v_order, 'shipped', p_actor, jsonb_build_object('lines', (
      select jsonb_agg(jsonb_build_object('skuId', k.id, 'code', k.code, 'qty', n.qty) order by k.code)
      from unnest(v_taken.skus, v_taken.qtys) n(sku_id, qty)
      join public.sku k on k.tenant_id = p_tenant and k.id = n.sku_id)));
    perform holdfast.end_if_shipped(p_tenant, v_order, p_actor);
    perform holdfast.tell_over_limit(p_tenant, v_order_row.customer_id);
  end if;
  return row(p_tenant, nullif(left(concat_ws('; ', v_taken.reason, 'shipped beyond what was ordered: ' || v_booking.beyond,
    case when v_order_row.status = 'cancelled' and v_booking.skus is not null then 'the order had been cancelled' end), 500), ''),
    null)::holdfast.verdict;
end $$;
