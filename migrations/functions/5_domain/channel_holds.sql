-- What channel orders have of SKUs: served as stock arrives, taken from as goods leave. A hold changes only under the lock of its
-- SKU's position, so whoever raises an ATS serves who waits without the lock of any order.

-- Books moves of units: holds, the allocation ledger, positions. The caller holds the positions. No events: see tell_ats.
create or replace function holdfast.move_channel(p_tenant uuid, p_moves holdfast.channel_move[], p_actor text) returns void
language plpgsql volatile security invoker as $$
begin
  update public.channel_hold h set qty_held = h.qty_held + m.qty
  from unnest(p_moves) m where h.tenant_id = p_tenant and h.channel_order_id = m.channel_order_id and h.sku_id = m.sku_id;
  insert into public.allocation_ledger (tenant_id, order_id, order_kind, sku_id, qty, entry_type, actor)
  select p_tenant, m.channel_order_id, 'channel', m.sku_id, m.qty, case when m.qty > 0 then 'allocate' else 'release' end, p_actor
  from unnest(p_moves) m;
  update public.sku_position p set allocated = p.allocated + m.qty
  from (select u.sku_id, sum(u.qty)::bigint as qty from unnest(p_moves) u group by u.sku_id) m
  where p.tenant_id = p_tenant and p.sku_id = m.sku_id;
end $$;

-- Gives ATS to channel orders that lack it, oldest first. The caller holds the positions. No events: see
-- tell_ats.
create or replace function holdfast.serve_channel_orders(p_tenant uuid, p_skus uuid[], p_actor text) returns void
language plpgsql volatile security invoker as $$
declare
  v_position record;
  v_hold record;
  v_left bigint;
  v_moves holdfast.channel_move[] := '{}';
begin
  for v_position in
    select p.sku_id, p.on_hand + p.on_order - p.allocated as ats from public.sku_position p
    where p.tenant_id = p_tenant and p.sku_id = any (p_skus) and p.on_hand + p.on_order > p.allocated order by p.sku_id
  loop
    v_left := v_position.ats;
    -- A cursor reads on only as far as the units last.
    for v_hold in
      select h.channel_order_id, h.qty_wanted - h.qty_held as lacking from public.channel_hold h
      where h.tenant_id = p_tenant and h.sku_id = v_position.sku_id and h.qty_held < h.qty_wanted
      order by h.placed_at, length(h.external_id), h.external_id
    loop
      v_moves := v_moves || row(v_hold.channel_order_id, v_position.sku_id, least(v_left, v_hold.lacking))::holdfast.channel_move;
      v_left := v_left - least(v_left, v_hold.lacking);
      exit when v_left = 0;
    end loop;
  end loop;
  if cardinality(v_moves) > 0 then
    perform holdfast.move_channel(p_tenant, v_moves, p_actor);
    perform holdfast.ease_missing(p_tenant, v_moves, p_actor, 'covered by now');
  end if;
end $$;

-- Takes units of a SKU from channel orders that hold them, for goods that have left: youngest first, never from p_order. Returns
-- what was taken, at most p_units; the caller counts it as missing.
create or replace function holdfast.take_from_channel_orders(p_tenant uuid, p_order uuid, p_sku uuid, p_units bigint, p_actor text)
returns holdfast.channel_move[]
language plpgsql volatile security invoker as $$
declare
  v_hold record;
  v_left bigint := p_units;
  v_moves holdfast.channel_move[] := '{}';
begin
  for v_hold in
    select h.channel_order_id, h.qty_held from public.channel_hold h
    where h.tenant_id = p_tenant and h.sku_id = p_sku and h.qty_held > 0 and h.channel_order_id <> p_order
    order by h.placed_at desc, length(h.external_id) desc, h.external_id desc
  loop
    v_moves := v_moves || row(v_hold.channel_order_id, p_sku, -least(v_left, v_hold.qty_held))::holdfast.channel_move;
    v_left := v_left - least(v_left, v_hold.qty_held);
    exit when v_left = 0;
  end loop;
  if cardinality(v_moves) > 0 then
    perform holdfast.move_channel(p_tenant, v_moves, p_actor);
  end if;
  return v_moves;
end $$;

-- Units of these holds that are no longer missing leave the shortfalls that they were counted in.
create or replace function holdfast.ease_missing(p_tenant uuid, p_of holdfast.channel_move[], p_actor text, p_note text)
returns void
language plpgsql volatile security invoker as $$
declare
  v_eased record;
begin
  with eased as (
    select h.channel_order_id, h.sku_id, h.shortfall_id, h.qty_counted - (h.qty_wanted - h.qty_held) as units
    from unnest(p_of) m
    cross join lateral (select h.* from public.channel_hold h where h.tenant_id = p_tenant
                        and h.channel_order_id = m.channel_order_id and h.sku_id = m.sku_id limit 1) h
    where h.qty_counted > h.qty_wanted - h.qty_held
  ), counted as (
    update public.channel_hold h set qty_counted = h.qty_counted - e.units
    from eased e where h.tenant_id = p_tenant and h.channel_order_id = e.channel_order_id and h.sku_id = e.sku_id
  )
  select array_agg(s.shortfall_id) as ids, array_agg(s.units) as units into v_eased
  from (select e.shortfall_id, sum(e.units)::bigint as units from eased e group by e.shortfall_id) s;
  if v_eased.ids is not null then
    perform holdfast.lower_shortfalls(p_tenant, v_eased.ids, v_eased.units, p_actor, p_note);
  end if;
end $$;

-- Counts newly missing units of these holds in the open shortfalls. p_beyond: by SKU, units that have left though the books have
-- none to give for them: they are owed.
create or replace function holdfast.count_missing(p_tenant uuid, p_of holdfast.channel_move[], p_skus uuid[], p_beyond bigint[])
returns void
language plpgsql volatile security invoker as $$
declare
  v_missing record;
begin
  select array_agg(n.sku_id order by n.sku_id) as skus, array_agg(n.missing + n.beyond order by n.sku_id) as qtys,
    array_agg(n.beyond order by n.sku_id) as owed, array_agg(0::bigint order by n.sku_id) as zeros
  into v_missing
  from (
    select u.sku_id, sum(u.missing)::bigint as missing, sum(u.beyond)::bigint as beyond
    from (
      select m.sku_id, m.qty as missing, 0 as beyond from unnest(p_of) m
      union all
      select b.sku_id, 0, b.qty from unnest(p_skus, p_beyond) as b(sku_id, qty)
    ) u group by u.sku_id
  ) n where n.missing + n.beyond > 0;
  if v_missing.skus is null then
    return;
  end if;
  perform holdfast.add_shortfall(p_tenant, v_missing.skus, v_missing.qtys, v_missing.owed, v_missing.zeros, 'channel_order');
  update public.channel_hold h
  set qty_counted = m.qty + case when h.shortfall_id = s.id then h.qty_counted else 0 end, shortfall_id = s.id
  from unnest(p_of) m
  cross join lateral (select s.id from public.shortfall s where s.tenant_id = p_tenant and s.sku_id = m.sku_id
                      and s.cause = 'channel_order' and s.settled_at is null limit 1) s
  where h.tenant_id = p_tenant and h.channel_order_id = m.channel_order_id and h.sku_id = m.sku_id and m.qty > 0;
end $$;

-- Units of this order that are counted as missing, and that have left all the same, are owed in the row that counts them: nobody
-- has to be told again. Returns what is left of p_beyond, by SKU.
create or replace function holdfast.owe_counted(p_tenant uuid, p_order uuid, p_skus uuid[], p_beyond bigint[]) returns bigint[]
language plpgsql volatile security invoker as $$
declare
  v_left bigint[];
begin
  with beyond as (
    select b.sku_id, b.qty, b.ord, s.id as shortfall_id,
      greatest(0, least(b.qty, h.qty_counted - (h.qty_wanted - h.qty_held))) as units
    from unnest(p_skus, p_beyond) with ordinality as b(sku_id, qty, ord)
    cross join lateral (
      select h.* from public.channel_hold h
      where h.tenant_id = p_tenant and h.channel_order_id = p_order and h.sku_id = b.sku_id limit 1) h
    left join lateral (
      select s.id from public.shortfall s
      where s.tenant_id = p_tenant and s.id = h.shortfall_id and s.settled_at is null limit 1) s on true
  ), counted as (
    update public.channel_hold h set qty_counted = h.qty_counted - b.units
    from beyond b
    where b.shortfall_id is not null and b.units > 0
      and h.tenant_id = p_tenant and h.channel_order_id = p_order and h.sku_id = b.sku_id
  ), owing as (
    update public.shortfall s set owed_on_hand = s.owed_on_hand + b.units, updated_at = now()
    from beyond b where b.units > 0 and s.tenant_id = p_tenant and s.id = b.shortfall_id
  )
  select array_agg(b.qty - case when b.shortfall_id is null then 0 else b.units end order by b.ord) into v_left from beyond b;
  return v_left;
end $$;
