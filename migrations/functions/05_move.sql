-- Moves promised stock between ATS and an order, and writes all that a move owes: position, order line, ledger,
-- events. Knows no rule but the last one: the guard in its UPDATE, behind which stands the CHECK.
--
-- The caller holds the order's row, and the positions' rows in order of SKU where there is more than one.
-- p_skus ascending and distinct; p_qtys signed alike, + allocates, - gives back.
-- Returns the SKUs' ATS after the move, in the order of p_skus. Returns null, and has written nothing, where a
-- single SKU's guard did not hold.
create or replace function holdfast.move(p_tenant uuid, p_order uuid, p_customer uuid, p_skus uuid[],
  p_qtys bigint[], p_entry_type text, p_actor text) returns bigint[]
language plpgsql volatile security invoker as $$
declare
  v_count constant int := cardinality(p_skus);
  v_moved uuid[];
  v_ats bigint[];
  v_sku_sequences bigint[];
  v_order_sequence bigint;
  v_order_event text;
begin
  with moved as (
    update public.sku_position p
    set allocated = p.allocated + r.qty, event_sequence = p.event_sequence + 1
    from unnest(p_skus, p_qtys) as r(sku_id, qty)
    where p.tenant_id = p_tenant and p.sku_id = r.sku_id
      and p.on_hand + p.on_order - p.allocated >= r.qty
    returning p.sku_id, p.on_hand + p.on_order - p.allocated as ats, p.event_sequence as sequence
  )
  select array_agg(sku_id order by sku_id), array_agg(ats order by sku_id), array_agg(sequence order by sku_id)
  into v_moved, v_ats, v_sku_sequences from moved;

  if v_moved is null and v_count = 1 then
    return null;
  elsif v_moved is distinct from p_skus then
    raise exception 'moved % of % positions: they were not locked and checked', cardinality(v_moved), v_count;
  end if;

  update public.order_line l set qty_allocated = l.qty_allocated + r.qty
  from unnest(p_skus, p_qtys) as r(sku_id, qty)
  where l.tenant_id = p_tenant and l.order_id = p_order and l.sku_id = r.sku_id;

  update public.wholesale_order o set event_sequence = o.event_sequence + v_count
  where o.tenant_id = p_tenant and o.id = p_order
  returning o.event_sequence - v_count into v_order_sequence;

  insert into public.allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor)
  select p_tenant, p_order, r.sku_id, r.qty, p_entry_type, p_actor from unnest(p_skus, p_qtys) as r(sku_id, qty);

  v_order_event := case when p_qtys[1] > 0 then 'order.line_allocated' else 'order.line_released' end;
  perform holdfast.emit(p_tenant, (
    select array_agg(row(e.type, e.aggregate_type, e.aggregate_id, e.sequence, e.customer_id, e.data)::holdfast.event
                     order by e.rank, e.ord)
    from unnest(p_skus, p_qtys, v_ats, v_sku_sequences) with ordinality as r(sku_id, qty, ats, sku_sequence, ord)
    cross join lateral (values
      (1, r.ord, v_order_event, 'wholesale_order', p_order, v_order_sequence + r.ord, p_customer,
       format('{"skuId":"%s","qty":%s,"atsAfter":%s}', r.sku_id, abs(r.qty), r.ats)),
      (2, r.ord, 'sku.ats_changed', 'sku', r.sku_id, r.sku_sequence, null,
       format('{"atsAfter":%s}', r.ats))
    ) as e(rank, ord, type, aggregate_type, aggregate_id, sequence, customer_id, data)));
  return v_ats;
end $$;
