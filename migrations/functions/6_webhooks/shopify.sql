-- What a Shopify shop reports of its orders. Facts are stored by the shop's own ids (lines, refund lines, cancelled, fulfilled),
-- and their effect is then applied line by line, so neither the order of arrival nor repetition matters.
-- p_command: do (the topic), orderId, refundLines, order (line_items as Shopify has them).
-- Lock order: channel order -> positions by SKU -> shortfalls -> inserts.
create or replace function holdfast.apply_shopify(p_tenant uuid, p_shop text, p_command jsonb, p_actor text)
returns holdfast.verdict
language plpgsql volatile security invoker as $$
declare
  v_do constant text := p_command ->> 'do';
  v_external constant text := p_command ->> 'orderId';
  v_order uuid;
  v_reason text;
begin
  if v_do = 'app/uninstalled' then
    update public.shopify_shop s set uninstalled_at = coalesce(s.uninstalled_at, now()) where s.domain = lower(p_shop);
    return row(p_tenant, null, null)::holdfast.verdict;
  end if;
  insert into public.channel_order (tenant_id, shop_domain, external_id) values (p_tenant, lower(p_shop), v_external)
  on conflict do nothing;
  select o.id into v_order from public.channel_order o
  where o.tenant_id = p_tenant and o.shop_domain = lower(p_shop) and o.external_id = v_external for no key update;

  insert into public.channel_refund_line (tenant_id, channel_order_id, external_id, line_external_id, qty, restock_type)
  select p_tenant, v_order, r.line ->> 'id', r.line ->> 'line_item_id', (r.line ->> 'quantity')::bigint, r.line ->> 'restock_type'
  from jsonb_array_elements(p_command -> 'refundLines') as r(line) where (r.line ->> 'quantity')::bigint > 0
  on conflict do nothing;

  if v_do in ('orders/create', 'orders/fulfilled') then
    -- A line with neither SKU nor variant is not goods: a tip, a gift wrap.
    with sent as (
      select s.line ->> 'id' as id, nullif(btrim(s.line ->> 'sku'), '') as sku, (s.line ->> 'quantity')::bigint as qty,
        k.id as sku_id
      from jsonb_array_elements(p_command -> 'order' -> 'line_items') as s(line)
      left join lateral (select k.id from public.sku k
                         where k.tenant_id = p_tenant and k.code = btrim(s.line ->> 'sku') limit 1) k on true
      where (nullif(btrim(s.line ->> 'sku'), '') is not null or s.line ->> 'variant_id' is not null)
        and (s.line ->> 'quantity')::bigint > 0
    ), taken as (
      insert into public.channel_order_line (tenant_id, channel_order_id, external_id, sku_id, qty)
      select p_tenant, v_order, s.id, s.sku_id, s.qty from sent s where s.sku_id is not null
      on conflict do nothing
    )
    select left('no SKU of ours: ' || string_agg(distinct coalesce(s.sku, format('(none, line %s)', s.id)), ', '), 500)
    into v_reason from sent s where s.sku_id is null;
  end if;
  if v_do in ('orders/fulfilled', 'orders/cancelled') then
    update public.channel_order o
    set fulfilled_at = case when v_do = 'orders/fulfilled' then coalesce(o.fulfilled_at, now()) else o.fulfilled_at end,
        cancelled_at = case when v_do = 'orders/cancelled' then coalesce(o.cancelled_at, now()) else o.cancelled_at end
    where o.tenant_id = p_tenant and o.id = v_order;
  end if;
  perform holdfast.settle_channel_order(p_tenant, v_order, v_do, p_actor);
  return row(p_tenant, v_reason, null)::holdfast.verdict;
end $$;

-- Each line of a channel order: what it has, and what its facts require. Ordered units came back to stock (refunded, or
-- cancelled), were written off (refunded without restock), or are wanted.
create or replace function holdfast.channel_lines(p_tenant uuid, p_order uuid)
returns table (external_id text, sku_id uuid, held bigint, gone bigint, short bigint, owed bigint, needed bigint,
  shortfall_id uuid, wanted bigint, written_off bigint, fulfilled boolean)
language sql stable security invoker as $$
  select l.external_id, l.sku_id, l.qty_allocated, l.qty_gone, l.qty_short, l.qty_owed, l.qty_needed, l.shortfall_id,
    case when o.cancelled_at is null then greatest(0, l.qty - written_off.qty - refunded.restocked) else 0 end::bigint,
    written_off.qty, o.fulfilled_at is not null
  from public.channel_order o
  join public.channel_order_line l on l.tenant_id = p_tenant and l.channel_order_id = o.id
  cross join lateral (
    select coalesce(sum(r.qty) filter (where r.restock_type <> 'no_restock'), 0) as restocked,
      coalesce(sum(r.qty) filter (where r.restock_type = 'no_restock'), 0) as not_restocked
    from public.channel_refund_line r
    where r.tenant_id = p_tenant and r.channel_order_id = o.id and r.line_external_id = l.external_id) refunded
  cross join lateral (select least(refunded.not_restocked, l.qty)::bigint as qty) written_off
  where o.tenant_id = p_tenant and o.id = p_order
$$;

-- What each line of a channel order is to have. Computed per SKU and then spread over its lines by their ids, so the order in
-- which lines arrived does not matter. The positions are locked. Newly needed units are taken as far as ATS covers them, and
-- missing ones too once the order is fulfilled; a decrease reduces the shortfall first, then allocated stock. Of the units taken,
-- write-offs come first; the rest is held, or gone once the order is fulfilled. Shipped units never taken are owed.
create or replace function holdfast.channel_lines_due(p_tenant uuid, p_order uuid)
returns table (sku_id uuid, external_id text, held bigint, gone bigint, short bigint, owed bigint, shortfall_id uuid,
  needed bigint, now_held bigint, now_gone bigint, now_short bigint, now_owed bigint)
language sql stable security invoker as $$
  -- Windows and lateral look-ups: a nested loop would compare all lines of an order with each other.
  with line as (
    select l.*, p.ats, sum(l.wanted + l.written_off) over sku as all_needed, sum(l.needed) over sku as all_needed_before,
      sum(l.held + l.gone) over sku as all_taken, sum(l.written_off) over sku as all_written_off,
      coalesce(sum(l.written_off) over earlier, 0) as earlier_written_off,
      coalesce(sum(l.wanted) over earlier, 0) as earlier_wanted
    from holdfast.channel_lines(p_tenant, p_order) l
    cross join lateral (select p.on_hand + p.on_order - p.allocated as ats from public.sku_position p
                        where p.tenant_id = p_tenant and p.sku_id = l.sku_id limit 1) p
    window sku as (partition by l.sku_id),
      earlier as (partition by l.sku_id order by l.external_id rows between unbounded preceding and 1 preceding)
  ), covered as (
    select l.*, least(l.all_needed, l.all_taken
      + least(l.ats, case when l.fulfilled then l.all_needed else greatest(0, l.all_needed - l.all_needed_before) end)) as taken
    from line l
  ), spread as (
    select c.*, least(c.written_off, greatest(0, c.taken - c.earlier_written_off))::bigint as off,
      least(c.wanted, greatest(0, c.taken - least(c.all_written_off, c.taken) - c.earlier_wanted))::bigint as served
    from covered c
  )
  select s.sku_id, s.external_id, s.held, s.gone, s.short, s.owed, s.shortfall_id, s.wanted + s.written_off,
    case when s.fulfilled then 0 else s.served end, s.off + case when s.fulfilled then s.served else 0 end,
    s.wanted - s.served, case when s.fulfilled then s.wanted - s.served else 0 end
  from spread s order by s.sku_id, s.external_id
$$;

-- The row of the channel order is locked.
create or replace function holdfast.settle_channel_order(p_tenant uuid, p_order uuid, p_event text, p_actor text)
returns void
language plpgsql volatile security invoker as $$
declare
  v_line record;
  v_skus uuid[] := array(select distinct l.sku_id from holdfast.channel_lines(p_tenant, p_order) l order by l.sku_id);
  v_zeros constant bigint[] := array_fill(0::bigint, array[cardinality(v_skus)]);
  v_on_hand bigint[] := v_zeros;
  v_allocated bigint[] := v_zeros;
  v_short bigint[] := v_zeros;
  v_owed bigint[] := v_zeros;
  v_shortfalls uuid[] := array_fill(null::uuid, array[cardinality(v_skus)]);
  n int := 0;
begin
  perform from public.sku_position p
  where p.tenant_id = p_tenant and p.sku_id = any (v_skus) order by p.sku_id for no key update;

  for v_line in select * from holdfast.channel_lines_due(p_tenant, p_order)
  loop
    if n = 0 or v_skus[n] <> v_line.sku_id then
      n := n + 1;
    end if;
    v_on_hand[n] := v_on_hand[n] + v_line.gone - v_line.now_gone;
    v_allocated[n] := v_allocated[n] + v_line.now_held - v_line.held;
    v_short[n] := v_short[n] + v_line.now_short - v_line.short;
    v_owed[n] := v_owed[n] + v_line.now_owed - v_line.owed;
    v_shortfalls[n] := coalesce(v_line.shortfall_id, v_shortfalls[n]);
    update public.channel_order_line l
    set qty_needed = v_line.needed, qty_allocated = v_line.now_held, qty_gone = v_line.now_gone,
        qty_short = v_line.now_short, qty_owed = v_line.now_owed
    where l.tenant_id = p_tenant and l.channel_order_id = p_order and l.external_id = v_line.external_id;
  end loop;

  for i in 1 .. n loop
    if v_short[i] < 0 then
      v_on_hand[i] := v_on_hand[i] + holdfast.ease_shortfall(p_tenant, v_shortfalls[i],
        greatest(0, -v_short[i]), greatest(0, -v_owed[i]), p_actor);
    end if;
  end loop;
  perform holdfast.shift(p_tenant,
    array(select row(u.sku_id, u.on_hand, 0, u.allocated, case when u.on_hand > 0 then 'return'
            when p_event = 'orders/fulfilled' then 'ship' else 'write_off' end)::holdfast.position_change
          from unnest(v_skus, v_on_hand, v_allocated) u(sku_id, on_hand, allocated) order by u.sku_id),
    p_order, 'channel',
    case p_event when 'orders/fulfilled' then 'ship' when 'orders/cancelled' then 'cancel' else 'release' end, p_actor);
  perform holdfast.miss_for_channel_order(p_tenant, p_order, v_skus, v_short, v_owed);
end $$;

-- Adds what a channel order newly misses (p_short), and of all that it misses, what was shipped (p_owed), to the shortfalls.
create or replace function holdfast.miss_for_channel_order(p_tenant uuid, p_order uuid, p_skus uuid[], p_short bigint[],
  p_owed bigint[]) returns void
language plpgsql volatile security invoker as $$
declare
  v_missing record;
begin
  -- What was missing before is in the open row already, unless that has been settled meanwhile.
  with owing as (
    update public.shortfall s set owed_on_hand = s.owed_on_hand + m.owed, updated_at = now()
    from unnest(p_skus, p_short, p_owed) as m(sku_id, short, owed)
    where s.tenant_id = p_tenant and s.sku_id = m.sku_id and s.cause = 'channel_order' and s.settled_at is null
      and m.owed > 0 and m.short <= 0
    returning s.sku_id
  )
  select array_agg(m.sku_id order by m.sku_id) as skus,
    array_agg(case when o.sku_id is not null then 0 when m.short > 0 then m.short else m.owed end order by m.sku_id) as qtys,
    array_agg(case when o.sku_id is null then m.owed else 0 end order by m.sku_id) as owed,
    array_agg(0::bigint order by m.sku_id) as zeros
  into v_missing
  from unnest(p_skus, p_short, p_owed) as m(sku_id, short, owed)
  left join owing o on o.sku_id = m.sku_id
  where m.short > 0 or m.owed > 0;
  if v_missing.skus is null then
    return;
  end if;
  perform holdfast.add_shortfall(p_tenant, v_missing.skus, v_missing.qtys, v_missing.owed, v_missing.zeros, 'channel_order');
  update public.channel_order_line l
  set shortfall_id = (select s.id from public.shortfall s where s.tenant_id = p_tenant and s.sku_id = l.sku_id
                      and s.cause = 'channel_order' and s.settled_at is null)
  where l.tenant_id = p_tenant and l.channel_order_id = p_order and l.sku_id = any (v_missing.skus);
end $$;
