-- What a shop tells of its orders: facts are kept by the shop's own ids (lines, refund lines, cancelled, fulfilled), and
-- each line is then brought to what its facts come to. So one movement per line, whatever came first or twice.
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
    -- A line without SKU and variant is no goods: a tip, a gift wrap.
    with sent as (
      select s.line ->> 'id' as id, nullif(btrim(s.line ->> 'sku'), '') as sku, (s.line ->> 'quantity')::bigint as qty, k.id as sku_id
      from jsonb_array_elements(p_command -> 'order' -> 'line_items') as s(line)
      left join lateral (select k.id from public.sku k where k.tenant_id = p_tenant and k.code = btrim(s.line ->> 'sku') limit 1) k on true
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

-- Each line of a channel order with what it has and what its facts come to. Of the ordered units, those refunded into
-- stock (or all that were not written off, of a cancelled order) need nothing from stock; the others need to be held, or to
-- be gone: written off, or shipped once the order is fulfilled.
create or replace function holdfast.channel_lines_due(p_tenant uuid, p_order uuid)
returns table (external_id text, sku_id uuid, held bigint, gone bigint, short bigint, shortfall_id uuid, needed bigint, gone_due bigint)
language sql stable security invoker as $$
  select l.external_id, l.sku_id, l.qty_allocated, l.qty_gone, l.qty_short, l.shortfall_id,
    l.qty - back.qty,
    written_off.qty + case when o.fulfilled_at is null then 0 else l.qty - back.qty - written_off.qty end
  from public.channel_order o
  join public.channel_order_line l on l.tenant_id = p_tenant and l.channel_order_id = o.id
  cross join lateral (
    select coalesce(sum(r.qty) filter (where r.restock_type <> 'no_restock'), 0) as restocked,
      coalesce(sum(r.qty) filter (where r.restock_type = 'no_restock'), 0) as not_restocked
    from public.channel_refund_line r
    where r.tenant_id = p_tenant and r.channel_order_id = o.id and r.line_external_id = l.external_id) refunded
  cross join lateral (select least(refunded.not_restocked, l.qty)::bigint as qty) written_off
  cross join lateral (select case when o.cancelled_at is null then least(refunded.restocked, l.qty - written_off.qty)
                                  else l.qty - written_off.qty end::bigint as qty) back
  where o.tenant_id = p_tenant and o.id = p_order
$$;

-- Brings every line of a channel order, whose row is locked, to what is due: first what is no longer needed comes back (from
-- what was short before from what was held), then what is newly needed is taken, as far as ATS covers it.
create or replace function holdfast.settle_channel_order(p_tenant uuid, p_order uuid, p_event text, p_actor text)
returns void
language plpgsql volatile security invoker as $$
declare
  v_line record;
  v_ats bigint;
  v_short bigint;
  v_covered bigint;
  v_gone bigint;
  v_skus uuid[] := '{}';
  v_on_hand bigint[] := '{}';
  v_allocated bigint[] := '{}';
  v_missing bigint[] := '{}';
  n int := 0;
begin
  perform from public.sku_position p
  where p.tenant_id = p_tenant and p.sku_id in (select d.sku_id from holdfast.channel_lines_due(p_tenant, p_order) d)
  order by p.sku_id for no key update;

  for v_line in
    select d.*, p.on_hand + p.on_order - p.allocated as ats, d.needed - d.held - d.gone - d.short as more
    from holdfast.channel_lines_due(p_tenant, p_order) d
    join public.sku_position p on p.tenant_id = p_tenant and p.sku_id = d.sku_id
    order by d.sku_id, d.needed - d.held - d.gone - d.short, d.external_id
  loop
    if n = 0 or v_skus[n] <> v_line.sku_id then
      n := n + 1;
      v_skus[n] := v_line.sku_id;
      v_on_hand[n] := 0;
      v_allocated[n] := 0;
      v_missing[n] := 0;
      v_ats := v_line.ats;
    end if;
    if v_line.more <= 0 then
      v_short := greatest(0, v_line.short + v_line.more);
    else
      v_short := v_line.short + v_line.more - least(v_line.more, v_ats);
    end if;
    v_covered := v_line.needed - v_short;
    v_gone := least(v_line.gone_due, v_covered);
    v_ats := v_ats - (v_covered - v_line.held - v_line.gone);
    v_on_hand[n] := v_on_hand[n] - (v_gone - v_line.gone);
    v_allocated[n] := v_allocated[n] + (v_covered - v_gone - v_line.held);
    v_missing[n] := v_missing[n] + greatest(0, v_short - v_line.short);
    if v_short < v_line.short then
      perform holdfast.ease_shortfall(p_tenant, v_line.shortfall_id, v_line.short - v_short, p_actor);
    end if;
    update public.channel_order_line l set qty_allocated = v_covered - v_gone, qty_gone = v_gone, qty_short = v_short
    where l.tenant_id = p_tenant and l.channel_order_id = p_order and l.external_id = v_line.external_id
      and (l.qty_allocated, l.qty_gone, l.qty_short) <> (v_covered - v_gone, v_gone, v_short);
  end loop;
  if n = 0 then
    return;
  end if;

  perform holdfast.shift(p_tenant, v_skus, v_on_hand, array_fill(0::bigint, array[n]), v_allocated,
    array(select case when u.units > 0 then 'return' when p_event = 'orders/fulfilled' then 'ship' else 'write_off' end
          from unnest(v_on_hand) with ordinality as u(units, ord) order by u.ord),
    p_order, 'channel',
    case p_event when 'orders/fulfilled' then 'ship' when 'orders/cancelled' then 'cancel' else 'release' end, p_actor);
  perform holdfast.add_shortfall(p_tenant, v_skus, v_missing, array_fill(0::bigint, array[n]), array_fill(0::bigint, array[n]),
    'channel_order');
  update public.channel_order_line l set shortfall_id = s.id
  from public.shortfall s
  where l.tenant_id = p_tenant and l.channel_order_id = p_order and l.qty_short > 0 and l.shortfall_id is null
    and s.tenant_id = p_tenant and s.sku_id = l.sku_id and s.cause = 'channel_order' and s.settled_at is null;
end $$;

-- Units that were missing are no longer wanted. A row that a person has settled stays as it was.
create or replace function holdfast.ease_shortfall(p_tenant uuid, p_shortfall uuid, p_units bigint, p_actor text) returns void
language plpgsql volatile security invoker as $$
begin
  update public.shortfall s
  set qty = case when s.qty > p_units then s.qty - p_units else s.qty end, updated_at = now(),
      settled_at = case when s.qty > p_units then null else now() end,
      settled_by = case when s.qty > p_units then null else p_actor end,
      note = case when s.qty > p_units then null else 'no longer wanted' end
  where s.tenant_id = p_tenant and s.id = p_shortfall and s.settled_at is null;
end $$;
