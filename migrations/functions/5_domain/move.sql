-- Moves promised stock between ATS and an order: order line, position, ledger, events. Its UPDATEs hold the rules of a line and of
-- the ATS; the CHECKs order_line_promised_within_qty and sku_position_no_oversell stand behind them. The caller holds the order's
-- row and, for several SKUs, has checked the rules and holds the positions' rows in order of SKU. p_skus ascending and distinct;
-- p_qtys of one sign, + allocates, - gives back. Returns each SKU's ATS after the move; null, with nothing changed, where a rule
-- does not hold for a single SKU.
--
-- The position is the hot row: every buyer in its queue pays for the time between its lock and the commit. So what needs no ATS
-- is written before it. The queue is an advisory lock on the request's first SKU: a commit wakes all who wait for a row, in no
-- order; here they are let in one by one. It guards nothing (the row does) and adds no deadlock: one per transaction, before any
-- position. So whoever comes with positions locked already (of which one SKU may be left to move) says so: app.positions_locked.
create or replace function holdfast.move(p_tenant uuid, p_order uuid, p_customer uuid, p_skus uuid[],
  p_qtys bigint[], p_entry_type text, p_actor text) returns bigint[]
language plpgsql volatile security invoker as $$
declare
  v_count constant int := cardinality(p_skus);
  v_moved int;
  v_turn text; -- for locks taken by assignment, which is not a query as PERFORM is
  v_ats bigint[];
  v_sku_sequences bigint[];
  v_order_sequence bigint;
  v_events holdfast.event[];
begin
  -- width_bucket: the place of a SKU in p_skus.
  update public.order_line l set qty_allocated = l.qty_allocated + p_qtys[width_bucket(l.sku_id, p_skus)]
  where l.tenant_id = p_tenant and l.order_id = p_order and l.sku_id = any (p_skus)
    and l.qty_allocated + p_qtys[width_bucket(l.sku_id, p_skus)] between 0 and l.qty - l.qty_shipped
    -- Read without a lock: only a guess, so that what is sold out is not written and put back.
    and (v_count > 1 or p_qtys[1] <= (select p.on_hand + p.on_order - p.allocated from public.sku_position p
                                      where p.tenant_id = p_tenant and p.sku_id = p_skus[1]));
  get diagnostics v_moved = row_count;
  if v_moved < v_count then
    if v_count = 1 then
      return null;
    end if;
    raise exception 'moved % of % lines: they were not checked', v_moved, v_count;
  end if;
  update public.wholesale_order o set event_sequence = o.event_sequence + v_count
  where o.tenant_id = p_tenant and o.id = p_order returning o.event_sequence into v_order_sequence;

  if v_count = 1 then
    if coalesce(current_setting('app.positions_locked', true), '') <> 'on' then
      v_turn := pg_advisory_xact_lock(holdfast.lock_class_sku(), uuid_hash(p_skus[1]));
    end if;
    update public.sku_position p
    set allocated = p.allocated + p_qtys[1], event_sequence = p.event_sequence + 1
    where p.tenant_id = p_tenant and p.sku_id = p_skus[1] and p.on_hand + p.on_order - p.allocated >= p_qtys[1]
    returning array[p.on_hand + p.on_order - p.allocated], array[p.event_sequence] into v_ats, v_sku_sequences;
    if not found then -- the last units went in this instant
      update public.order_line l set qty_allocated = l.qty_allocated - p_qtys[1]
      where l.tenant_id = p_tenant and l.order_id = p_order and l.sku_id = p_skus[1];
      update public.wholesale_order o set event_sequence = o.event_sequence - 1
      where o.tenant_id = p_tenant and o.id = p_order;
      return null;
    end if;
  else
    with moved as (
      update public.sku_position p
      set allocated = p.allocated + p_qtys[width_bucket(p.sku_id, p_skus)], event_sequence = p.event_sequence + 1
      where p.tenant_id = p_tenant and p.sku_id = any (p_skus)
        and p.on_hand + p.on_order - p.allocated >= p_qtys[width_bucket(p.sku_id, p_skus)]
      returning p.sku_id, p.on_hand + p.on_order - p.allocated as ats, p.event_sequence as sequence
    )
    select count(*), array_agg(ats order by sku_id), array_agg(sequence order by sku_id)
    into v_moved, v_ats, v_sku_sequences from moved;
    if v_moved < v_count then
      raise exception 'moved % of % positions: they were not locked and checked', v_moved, v_count;
    end if;
  end if;

  -- Under the positions' locks, so that created_at gives the order of the moves.
  insert into public.allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor)
  select p_tenant, p_order, unnest(p_skus), unnest(p_qtys), p_entry_type, p_actor;

  for i in 1 .. v_count loop
    v_events[i] := row(case when p_qtys[i] > 0 then 'order.line_allocated' else 'order.line_released' end,
      'wholesale_order', p_order, v_order_sequence - v_count + i, p_customer,
      format('{"skuId":"%s","qty":%s,"atsAfter":%s}', p_skus[i], abs(p_qtys[i]), v_ats[i]))::holdfast.event;
    v_events[v_count + i] := row('sku.ats_changed', 'sku', p_skus[i], v_sku_sequences[i], null,
      format('{"atsAfter":%s}', v_ats[i]))::holdfast.event;
  end loop;
  perform holdfast.fan_out(p_tenant, v_events, null, null);
  return v_ats;
end $$;
