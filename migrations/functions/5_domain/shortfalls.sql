-- Shortfalls: promised units that are missing. While they are promised, the position cannot lose them without breaking allocated
-- <= on_hand + on_order. So it still carries them (owed_on_hand, owed_on_order) until ATS covers them.

-- Adds missing units: one open row per SKU and cause, emitted as inventory.shortfall with its new total. The caller holds the
-- positions' rows. Quantities of 0 are skipped.
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

-- Lowers open rows by units; at 0 a row is settled. A settled row stays as it is. The caller holds the positions' rows.
create or replace function holdfast.lower_shortfalls(p_tenant uuid, p_ids uuid[], p_units bigint[], p_actor text, p_note text)
returns void
language plpgsql volatile security invoker as $$
begin
  update public.shortfall s
  set qty = case when s.qty > l.units then s.qty - l.units else s.qty end, updated_at = now(),
      settled_at = case when s.qty > l.units then null else now() end,
      settled_by = case when s.qty > l.units then null else p_actor end,
      note = case when s.qty > l.units then null else p_note end
  from unnest(p_ids, p_units) as l(id, units)
  where s.tenant_id = p_tenant and s.id = l.id and s.settled_at is null;
end $$;

-- Takes owed units from positions, as far as ATS covers them now, oldest first; or, where units came back of what was shipped just
-- now (p_returned), those first that no person has settled. The caller holds the positions. No events: see tell_ats.
create or replace function holdfast.cover_owed(p_tenant uuid, p_skus uuid[], p_returned boolean, p_actor text) returns void
language plpgsql volatile security invoker as $$
declare
  v_row record;
  v_ats bigint;
  v_on_hand bigint;
  v_on_order bigint;
begin
  for v_row in
    select s.id, s.sku_id, s.owed_on_hand, s.owed_on_order from public.shortfall s
    where s.tenant_id = p_tenant and s.sku_id = any (p_skus) and s.owed_on_hand + s.owed_on_order > 0
    order by s.sku_id, p_returned and s.settled_at is not null, s.opened_at, s.id for no key update
  loop
    select p.on_hand + p.on_order - p.allocated into v_ats from public.sku_position p
    where p.tenant_id = p_tenant and p.sku_id = v_row.sku_id;
    v_on_hand := least(v_row.owed_on_hand, v_ats);
    v_on_order := least(v_row.owed_on_order, v_ats - v_on_hand);
    continue when v_on_hand + v_on_order = 0;
    update public.shortfall s
    set owed_on_hand = s.owed_on_hand - v_on_hand, owed_on_order = s.owed_on_order - v_on_order, updated_at = now()
    where s.tenant_id = p_tenant and s.id = v_row.id;
    perform holdfast.lower_shortfalls(p_tenant, array[v_row.id], array[v_on_hand + v_on_order], p_actor, 'covered by now');
    perform holdfast.book(p_tenant,
      array[row(v_row.sku_id, -v_on_hand, -v_on_order, 0, 'shortfall')::holdfast.position_change], p_actor);
  end loop;
end $$;

-- Those of the SKUs that somebody waits for: owed units, or a channel order that lacks some.
create or replace function holdfast.waited_for(p_tenant uuid, p_skus uuid[]) returns uuid[]
language sql stable security invoker as $$
  select array(
    select k.id from unnest(p_skus) as k(id)
    where (select true from public.shortfall s
           where s.tenant_id = p_tenant and s.sku_id = k.id and s.owed_on_hand + s.owed_on_order > 0 limit 1)
       or (select true from public.channel_hold h
           where h.tenant_id = p_tenant and h.sku_id = k.id and h.qty_held < h.qty_wanted limit 1))
$$;

-- Whatever raises an ATS calls it: missing units are never for sale. What is owed comes first, then who lacks units, oldest first.
-- The caller holds the positions and has told their present ATS. Returns whether anything was taken.
create or replace function holdfast.book_owed(p_tenant uuid, p_skus uuid[], p_actor text) returns boolean
language plpgsql volatile security invoker as $$
declare
  v_waiting constant uuid[] := holdfast.waited_for(p_tenant, p_skus);
  v_told bigint[];
begin
  if cardinality(v_waiting) = 0 then
    return false;
  end if;
  v_told := holdfast.ats_of(p_tenant, v_waiting);
  perform holdfast.cover_owed(p_tenant, v_waiting, false, p_actor);
  perform holdfast.serve_channel_orders(p_tenant, v_waiting, p_actor);
  return holdfast.tell_ats(p_tenant, v_waiting, v_told);
end $$;
