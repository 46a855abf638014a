-- Positions moved by what happened outside: received, shipped, sold by a channel, written off.

-- Moves positions by sets, with all that a move owes: ledger lines and sku.ats_changed where the ATS changed.
-- The caller holds the positions' rows, locked in order of SKU, and has made sure that allocated <= on_hand + on_order
-- stays true. p_skus ascending and distinct; p_allocated: + allocates, - is of p_allocation_type, for p_order of p_order_kind.
create or replace function holdfast.shift(p_tenant uuid, p_skus uuid[], p_on_hand bigint[], p_on_order bigint[],
  p_allocated bigint[], p_stock_types text[], p_order uuid, p_order_kind text, p_allocation_type text, p_actor text)
returns void
language plpgsql volatile security invoker as $$
declare
  v_events holdfast.event[];
begin
  with moved as (
    update public.sku_position p
    set on_hand = p.on_hand + m.on_hand, on_order = p.on_order + m.on_order, allocated = p.allocated + m.allocated,
        event_sequence = p.event_sequence + case when m.on_hand + m.on_order <> m.allocated then 1 else 0 end
    from unnest(p_skus, p_on_hand, p_on_order, p_allocated) as m(sku_id, on_hand, on_order, allocated)
    where p.tenant_id = p_tenant and p.sku_id = m.sku_id and (m.on_hand, m.on_order, m.allocated) <> (0, 0, 0)
    returning p.sku_id, p.on_hand + p.on_order - p.allocated as ats, p.event_sequence as sequence,
      m.on_hand + m.on_order <> m.allocated as ats_changed
  )
  select array_agg(row('sku.ats_changed', 'sku', sku_id, sequence, null, format('{"atsAfter":%s}', ats))::holdfast.event
    order by sku_id) into v_events from moved where ats_changed;

  insert into public.stock_ledger (tenant_id, sku_id, on_hand_delta, on_order_delta, entry_type, actor)
  select p_tenant, m.sku_id, m.on_hand, m.on_order, m.entry_type, p_actor
  from unnest(p_skus, p_on_hand, p_on_order, p_stock_types) as m(sku_id, on_hand, on_order, entry_type)
  where (m.on_hand, m.on_order) <> (0, 0);
  insert into public.allocation_ledger (tenant_id, order_id, order_kind, sku_id, qty, entry_type, actor)
  select p_tenant, p_order, p_order_kind, m.sku_id, m.qty, case when m.qty > 0 then 'allocate' else p_allocation_type end, p_actor
  from unnest(p_skus, p_allocated) as m(sku_id, qty) where m.qty <> 0;
  if v_events is not null then
    perform holdfast.emit(p_tenant, v_events);
  end if;
end $$;

-- Counts units that are not there: one open row per SKU and cause, told as inventory.shortfall with what is open now.
-- The caller holds the positions' rows. What is 0 is left out. Returns nothing: shortfall_one_open finds the row.
create or replace function holdfast.add_shortfall(p_tenant uuid, p_skus uuid[], p_qtys bigint[], p_owed_on_hand bigint[],
  p_owed_on_order bigint[], p_cause text) returns void
language plpgsql volatile security invoker as $$
declare
  v_events holdfast.event[];
begin
  with opened as (
    insert into public.shortfall as s (tenant_id, sku_id, qty, cause, owed_on_hand, owed_on_order)
    select p_tenant, m.sku_id, m.qty, p_cause, m.owed_on_hand, m.owed_on_order
    from unnest(p_skus, p_qtys, p_owed_on_hand, p_owed_on_order) as m(sku_id, qty, owed_on_hand, owed_on_order)
    where m.qty > 0 order by m.sku_id
    on conflict (tenant_id, sku_id, cause) where settled_at is null do update
      set qty = s.qty + excluded.qty, owed_on_hand = s.owed_on_hand + excluded.owed_on_hand,
          owed_on_order = s.owed_on_order + excluded.owed_on_order, updated_at = now()
    returning s.sku_id, s.qty
  ), numbered as (
    update public.sku_position p set event_sequence = p.event_sequence + 1
    from opened where p.tenant_id = p_tenant and p.sku_id = opened.sku_id
    returning p.sku_id, opened.qty, p.event_sequence as sequence
  )
  select array_agg(row('inventory.shortfall', 'sku', sku_id, sequence, null,
    format('{"qty":%s,"cause":%s}', qty, holdfast.quote(p_cause)))::holdfast.event order by sku_id) into v_events from numbered;
  if v_events is not null then
    perform holdfast.emit(p_tenant, v_events);
  end if;
end $$;
