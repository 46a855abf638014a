-- Moves promised stock between ATS and an order: order line, position, ledger, events. Checks only the ATS, in its UPDATE's
-- WHERE; the CHECK sku_position_no_oversell stands behind that. The caller holds the order's row and, for several SKUs, the
-- positions' rows in order of SKU. p_skus ascending and distinct; p_qtys of one sign, + allocates, - gives back. Returns each
-- SKU's ATS after the move; null, with nothing changed, where the ATS of a single SKU does not suffice.
--
-- The position is the hot row: every buyer in its queue pays for the time between its lock and the commit. So what needs no ATS
-- is written before it, and events are made without a statement. The queue is an advisory lock on the request's first SKU: a
-- commit wakes all who wait for a row, in no order; here they are let in one by one. It guards nothing (the row does) and adds no
-- deadlock: one per transaction, before any position.
create or replace function holdfast.move(p_tenant uuid, p_order uuid, p_customer uuid, p_skus uuid[],
  p_qtys bigint[], p_entry_type text, p_actor text) returns bigint[]
language plpgsql volatile security invoker as $$
declare
  v_count constant int := cardinality(p_skus);
  v_moved uuid[];
  v_ats bigint[];
  v_sku_sequences bigint[];
  v_order_sequence bigint;
  v_events holdfast.event[];
begin
  v_order_sequence := holdfast.move_lines(p_tenant, p_order, p_skus, p_qtys, v_count);

  if v_count = 1 then
    perform pg_advisory_xact_lock(holdfast.lock_class_sku(), uuid_hash(p_skus[1]));
    update public.sku_position p
    set allocated = p.allocated + p_qtys[1], event_sequence = p.event_sequence + 1
    where p.tenant_id = p_tenant and p.sku_id = p_skus[1] and p.on_hand + p.on_order - p.allocated >= p_qtys[1]
    returning array[p.on_hand + p.on_order - p.allocated], array[p.event_sequence] into v_ats, v_sku_sequences;
    if not found then
      perform holdfast.move_lines(p_tenant, p_order, p_skus, array[-p_qtys[1]], -1);
      return null;
    end if;
  else
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
    if v_moved is distinct from p_skus then
      raise exception 'moved % of % positions: they were not locked and checked', cardinality(v_moved), v_count;
    end if;
  end if;

  -- Under the positions' locks, so that created_at gives the order of the moves.
  insert into public.allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor)
  select p_tenant, p_order, r.sku_id, r.qty, p_entry_type, p_actor from unnest(p_skus, p_qtys) as r(sku_id, qty);

  for i in 1 .. v_count loop
    v_events[i] := row(case when p_qtys[i] > 0 then 'order.line_allocated' else 'order.line_released' end,
      'wholesale_order', p_order, v_order_sequence - v_count + i, p_customer,
      format('{"skuId":"%s","qty":%s,"atsAfter":%s}', p_skus[i], abs(p_qtys[i]), v_ats[i]))::holdfast.event;
    v_events[v_count + i] := row('sku.ats_changed', 'sku', p_skus[i], v_sku_sequences[i], null,
      format('{"atsAfter":%s}', v_ats[i]))::holdfast.event;
  end loop;
  perform holdfast.emit(p_tenant, v_events);
  return v_ats;
end $$;

-- Adds p_qtys to an order's lines and p_events to its sequence, which it returns. The order's row is locked.
create or replace function holdfast.move_lines(p_tenant uuid, p_order uuid, p_skus uuid[], p_qtys bigint[], p_events int)
returns bigint
language plpgsql volatile security invoker as $$
declare
  v_sequence bigint;
begin
  with line as (
    update public.order_line l set qty_allocated = l.qty_allocated + r.qty
    from unnest(p_skus, p_qtys) as r(sku_id, qty)
    where l.tenant_id = p_tenant and l.order_id = p_order and l.sku_id = r.sku_id
  )
  update public.wholesale_order o set event_sequence = o.event_sequence + p_events
  where o.tenant_id = p_tenant and o.id = p_order
  returning o.event_sequence into v_sequence;
  return v_sequence;
end $$;
