-- Shortfalls: promised units that are missing. owed_on_hand and owed_on_order of one are what the position still carries too
-- many, since it is promised: they are booked as soon as ATS covers them.

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

-- p_units are no longer missing; p_owed of those were shipped unallocated, and are now returned. Returns how many of the latter
-- the books had lost meanwhile, and the row with them. A row that is settled stays so.
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
-- units that are not there are never on sale. The caller holds the positions' rows. Returns whether anything was booked.
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
    perform holdfast.shift(p_tenant, array[row(v_row.sku_id, -v_on_hand, -v_on_order, 0, 'shortfall')::holdfast.position_change],
      null, null, null, p_actor);
    v_booked := true;
  end loop;
  return v_booked;
end $$;
