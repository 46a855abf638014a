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
  perform holdfast.book_owed(p_tenant, array(select m.sku_id from unnest(p_skus, p_on_hand, p_on_order, p_allocated)
    as m(sku_id, on_hand, on_order, allocated) where m.on_hand + m.on_order > m.allocated), p_actor);
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

-- p_units are no longer missing; of those, p_owed had left all the same and are back. Returns how many of these the books
-- had lost meanwhile, and the row with them. A row that is settled stays so.
create or replace function holdfast.ease_shortfall(p_tenant uuid, p_shortfall uuid, p_units bigint, p_owed bigint, p_actor text)
returns bigint
language plpgsql volatile security invoker as $$
declare
  v_booked bigint;
begin
  select greatest(0, p_owed - s.owed_on_hand) into v_booked from public.shortfall s
  where s.tenant_id = p_tenant and s.id = p_shortfall for no key update;
  update public.shortfall s set owed_on_hand = s.owed_on_hand - (p_owed - v_booked), updated_at = now()
  where s.tenant_id = p_tenant and s.id = p_shortfall;
  perform holdfast.lower_shortfall(p_tenant, p_shortfall, p_units - v_booked, p_actor, 'no longer wanted');
  return v_booked;
end $$;

-- Lowers an open row, whose lock is held, by p_units; none left: it is settled.
create or replace function holdfast.lower_shortfall(p_tenant uuid, p_shortfall uuid, p_units bigint, p_actor text, p_note text)
returns void
language plpgsql volatile security invoker as $$
begin
  update public.shortfall s
  set qty = case when s.qty > p_units then s.qty - p_units else s.qty end, updated_at = now(),
      settled_at = case when s.qty > p_units then null else now() end,
      settled_by = case when s.qty > p_units then null else p_actor end,
      note = case when s.qty > p_units then null else p_note end
  where s.tenant_id = p_tenant and s.id = p_shortfall and s.settled_at is null;
end $$;

-- Takes from positions what they carry too many, as far as ATS covers it by now. To be called by whatever raises an ATS:
-- units that are not there are never on sale. The caller holds the positions' rows. Says whether anything was booked.
create or replace function holdfast.book_owed(p_tenant uuid, p_skus uuid[], p_actor text) returns boolean
language plpgsql volatile security invoker as $$
declare
  v_row record;
  v_ats bigint;
  v_on_hand bigint;
  v_on_order bigint;
  v_booked boolean := false;
begin
  for v_row in
    select s.id, s.sku_id, s.owed_on_hand, s.owed_on_order from public.shortfall s
    where s.tenant_id = p_tenant and s.sku_id = any (p_skus) and s.owed_on_hand + s.owed_on_order > 0
    order by s.sku_id, s.opened_at, s.id for no key update
  loop
    select p.on_hand + p.on_order - p.allocated into v_ats from public.sku_position p
    where p.tenant_id = p_tenant and p.sku_id = v_row.sku_id;
    v_on_hand := least(v_row.owed_on_hand, v_ats);
    v_on_order := least(v_row.owed_on_order, v_ats - v_on_hand);
    continue when v_on_hand + v_on_order = 0;
    update public.shortfall s
    set owed_on_hand = s.owed_on_hand - v_on_hand, owed_on_order = s.owed_on_order - v_on_order, updated_at = now()
    where s.tenant_id = p_tenant and s.id = v_row.id;
    perform holdfast.lower_shortfall(p_tenant, v_row.id, v_on_hand + v_on_order, p_actor, 'covered by now');
    perform holdfast.shift(p_tenant, array[v_row.sku_id], array[-v_on_hand], array[-v_on_order], array[0::bigint],
      array['shortfall'], null, null, null, p_actor);
    v_booked := true;
  end loop;
  return v_booked;
end $$;
