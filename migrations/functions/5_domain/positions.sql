-- Changes positions by what happened outside (received, shipped, sold by a channel, written off), with ledger lines and events;
-- units that somebody waits for go there before ATS rises. The caller holds the positions' rows, locked in order of SKU, and keeps
-- allocated <= on_hand + on_order. p_changes: by SKU, ascending and distinct. p_allocation_type: the ledger's entry_type of what
-- leaves `allocated`.
create or replace function holdfast.shift(p_tenant uuid, p_changes holdfast.position_change[], p_order uuid,
  p_order_kind text, p_allocation_type text, p_actor text)
returns void
language plpgsql volatile security invoker as $$
declare
  v_skus constant uuid[] := array(select m.sku_id from unnest(p_changes) m);
  v_told constant bigint[] := holdfast.ats_of(p_tenant, v_skus);
  v_waiting constant uuid[] := holdfast.waited_for(p_tenant, array(select m.sku_id from unnest(p_changes) m
    where m.on_hand + m.on_order > m.allocated));
begin
  perform holdfast.book(p_tenant, p_changes, p_actor);
  insert into public.allocation_ledger (tenant_id, order_id, order_kind, sku_id, qty, entry_type, actor)
  select p_tenant, p_order, p_order_kind, m.sku_id, m.allocated,
    case when m.allocated > 0 then 'allocate' else p_allocation_type end, p_actor
  from unnest(p_changes) m where m.allocated <> 0;
  if cardinality(v_waiting) > 0 then
    perform holdfast.cover_owed(p_tenant, v_waiting, false, p_actor);
    perform holdfast.serve_channel_orders(p_tenant, v_waiting, p_actor);
  end if;
  perform holdfast.tell_ats(p_tenant, v_skus, v_told);
end $$;

-- Positions and the stock ledger, and nothing else: what changes `allocated` has ledger lines of its own, and what changes ATS is
-- told by tell_ats when all is booked. The caller holds the positions' rows.
create or replace function holdfast.book(p_tenant uuid, p_changes holdfast.position_change[], p_actor text) returns void
language plpgsql volatile security invoker as $$
begin
  update public.sku_position p
  set on_hand = p.on_hand + m.on_hand, on_order = p.on_order + m.on_order, allocated = p.allocated + m.allocated
  from unnest(p_changes) m
  where p.tenant_id = p_tenant and p.sku_id = m.sku_id and (m.on_hand, m.on_order, m.allocated) <> (0, 0, 0);
  insert into public.stock_ledger (tenant_id, sku_id, on_hand_delta, on_order_delta, entry_type, actor)
  select p_tenant, m.sku_id, m.on_hand, m.on_order, m.entry_type, p_actor
  from unnest(p_changes) m
  where (m.on_hand, m.on_order) <> (0, 0);
end $$;

-- The ATS of SKUs, in the order asked. The caller holds the positions' rows.
create or replace function holdfast.ats_of(p_tenant uuid, p_skus uuid[]) returns bigint[]
language sql stable security invoker as $$
  select array(
    select (select p.on_hand + p.on_order - p.allocated from public.sku_position p
            where p.tenant_id = p_tenant and p.sku_id = k.id)
    from unnest(p_skus) with ordinality as k(id, ord) order by k.ord)
$$;

-- Emits sku.ats_changed of those SKUs whose ATS is not the one that was told last. The caller holds the positions' rows. Returns
-- whether there was any.
create or replace function holdfast.tell_ats(p_tenant uuid, p_skus uuid[], p_told bigint[]) returns boolean
language plpgsql volatile security invoker as $$
declare
  v_events holdfast.event[];
begin
  with changed as (
    update public.sku_position p set event_sequence = p.event_sequence + 1
    from unnest(p_skus, p_told) as t(sku_id, ats)
    where p.tenant_id = p_tenant and p.sku_id = t.sku_id and p.on_hand + p.on_order - p.allocated <> t.ats
    returning p.sku_id, p.on_hand + p.on_order - p.allocated as ats, p.event_sequence as sequence
  )
  select array_agg(row('sku.ats_changed', 'sku', sku_id, sequence, null, format('{"atsAfter":%s}', ats))::holdfast.event
    order by sku_id) into v_events from changed;
  if v_events is null then
    return false;
  end if;
  perform holdfast.emit(p_tenant, v_events);
  return true;
end $$;

-- For an operator who found a row in position_audit (owner only): repairs positions from their ledgers, and returns how many
-- differed. It locks the positions in order of SKU, so it may run beside traffic.
create or replace function holdfast.rebuild_positions(p_tenant uuid) returns bigint
language plpgsql volatile security invoker as $$
declare
  v_repaired bigint;
begin
  perform from public.sku_position where tenant_id = p_tenant order by sku_id for no key update;
  update public.sku_position p
  set on_hand = a.ledger_on_hand, on_order = a.ledger_on_order, allocated = a.ledger_allocated
  from public.position_audit a
  where a.tenant_id = p_tenant and p.tenant_id = a.tenant_id and p.sku_id = a.sku_id;
  get diagnostics v_repaired = row_count;
  return v_repaired;
end $$;

revoke all on function holdfast.rebuild_positions(uuid) from public;
