-- What a Shopify shop tells of its orders. Each fact is a row by the shop's own ids, the newest telling of it: the order's lines as
-- its newest body says, refund lines, fulfilments, edits. What follows from all of them is in channel_orders.sql, so neither the
-- order of arrival nor repetition matters.
-- p_command: see shared/src/webhooks/shopify.rs. retry: a person asks, so what is still missing is told again.
-- Lock order: channel order -> positions by SKU -> shortfalls -> inserts.
create or replace function holdfast.apply_shopify(p_tenant uuid, p_shop text, p_command jsonb, p_actor text)
returns holdfast.verdict
language plpgsql volatile security invoker as $$
declare
  v_do constant text := p_command ->> 'do';
  v_external constant text := p_command ->> 'orderId';
  v_order uuid;
  v_unknown text;
begin
  if v_do = 'app/uninstalled' then
    return row(p_tenant, null, null)::holdfast.verdict; -- note_installation follows
  elsif v_do = 'reverse_fulfillment_orders/dispose' then
    return holdfast.ask_for_dispositions(p_tenant, lower(p_shop), p_command, p_actor);
  elsif not p_command ? 'refundLines' or not p_command ? 'fulfillments' then
    -- Read by an earlier release, which did not read all of it: the redelivery is read by this one.
    raise exception 'a command of an earlier release' using errcode = 'serialization_failure';
  end if;
  v_order := holdfast.lock_channel_order(p_tenant, lower(p_shop), v_external);
  perform holdfast.note_refund_lines(p_tenant, v_order, p_command -> 'refundLines');
  perform holdfast.note_fulfillments(p_tenant, v_order, p_command -> 'fulfillments');
  insert into public.channel_edit_line (tenant_id, channel_order_id, line_external_id, edit_external_id, committed_at, delta)
  select p_tenant, v_order, e.id, p_command ->> 'editId', (p_command ->> 'committedAt')::timestamptz, sum(e.delta)::bigint
  from jsonb_to_recordset(p_command -> 'edits') as e(id text, delta bigint)
  group by e.id having sum(e.delta) <> 0
  on conflict do nothing;
  if p_command ? 'version' then
    perform holdfast.note_body(p_tenant, v_order, p_command);
  end if;
  if v_do = 'orders/delete' then
    update public.channel_order o set deleted_at = coalesce(o.deleted_at, now()) where o.tenant_id = p_tenant and o.id = v_order;
  end if;

  v_unknown := holdfast.unknown_codes(p_tenant, v_order, p_command ? 'retry', p_actor);
  perform holdfast.settle_channel_order(p_tenant, v_order, p_actor);
  return row(p_tenant, left('no SKU of ours: ' || v_unknown, 500), null)::holdfast.verdict;
end $$;

-- The order's row, locked; a new one where nothing has been told of it.
create or replace function holdfast.lock_channel_order(p_tenant uuid, p_shop text, p_external text) returns uuid
language plpgsql volatile security invoker as $$
declare
  v_order uuid;
begin
  insert into public.channel_order (tenant_id, shop_domain, external_id) values (p_tenant, p_shop, p_external)
  on conflict do nothing;
  select o.id into v_order from public.channel_order o
  where o.tenant_id = p_tenant and o.shop_domain = p_shop and o.external_id = p_external for no key update;
  return v_order;
end $$;

-- A refund line never changes; should it be told in two ways, the greater one counts, whichever came first.
create or replace function holdfast.note_refund_lines(p_tenant uuid, p_order uuid, p_lines jsonb) returns void
language plpgsql volatile security invoker as $$
begin
  insert into public.channel_refund_line as r (tenant_id, channel_order_id, external_id, line_external_id, qty, restock_type)
  select distinct on (s.id) p_tenant, p_order, s.id, s.line_item_id, s.quantity, s.restock_type
  from jsonb_to_recordset(p_lines) as s(id text, line_item_id text, quantity bigint, restock_type text)
  where s.quantity > 0 order by s.id, s.quantity desc, s.restock_type desc
  on conflict (tenant_id, channel_order_id, external_id) do update
    set qty = excluded.qty, restock_type = excluded.restock_type
    where (excluded.qty, excluded.restock_type) > (r.qty, r.restock_type);
end $$;

-- Fulfilments as their newest bodies say. A line that no order's body has told yet is shipped all the same.
create or replace function holdfast.note_fulfillments(p_tenant uuid, p_order uuid, p_fulfillments jsonb) returns void
language plpgsql volatile security invoker as $$
declare
  v_newer text[];
begin
  with newer as (
    insert into public.channel_fulfillment as f (tenant_id, channel_order_id, external_id, version)
    select distinct on (s.id) p_tenant, p_order, s.id, s.version
    from jsonb_to_recordset(p_fulfillments) as s(id text, version text) order by s.id, s.version collate "C" desc
    on conflict (tenant_id, channel_order_id, external_id) do update set version = excluded.version
      where excluded.version > f.version
    returning f.external_id, f.version
  )
  select array_agg(n.external_id || '/' || n.version) into v_newer from newer n;
  if v_newer is null then
    return;
  end if;
  update public.channel_fulfillment_line l set qty = 0
  where l.tenant_id = p_tenant and l.channel_order_id = p_order and l.qty > 0
    and l.fulfillment_external_id in (
      select s.id from jsonb_to_recordset(p_fulfillments) as s(id text, version text)
      where s.id || '/' || s.version = any (v_newer));
  insert into public.channel_fulfillment_line as l
    (tenant_id, channel_order_id, line_external_id, fulfillment_external_id, qty)
  select p_tenant, p_order, s.line, s.id, sum(s.qty)::bigint from (
    select f.id, n.id as line, n.qty
    from jsonb_to_recordset(p_fulfillments) as f(id text, version text, lines jsonb)
    cross join lateral jsonb_to_recordset(f.lines) as n(id text, qty bigint)
    where f.id || '/' || f.version = any (v_newer)
  ) s group by s.line, s.id
  on conflict (tenant_id, channel_order_id, line_external_id, fulfillment_external_id) do update set qty = excluded.qty;
  insert into public.channel_order_line (tenant_id, channel_order_id, external_id, code, is_goods, qty, qty_fulfilled)
  select distinct on (n.id) p_tenant, p_order, n.id, n.sku, n.goods, null, case when o.fulfilled_lines then 0 end
  from public.channel_order o
  cross join lateral jsonb_to_recordset(p_fulfillments) as f(id text, lines jsonb)
  cross join lateral jsonb_to_recordset(f.lines) as n(id text, sku text, goods boolean, qty bigint)
  where o.tenant_id = p_tenant and o.id = p_order and n.qty > 0 order by n.id
  on conflict do nothing;
end $$;

-- The order as one of its bodies says, if none that is newer has been told. version orders bodies. lines is null where the body has
-- none: then it says nothing of them.
create or replace function holdfast.note_body(p_tenant uuid, p_order uuid, p_command jsonb) returns void
language plpgsql volatile security invoker as $$
declare
  v_version constant text := p_command ->> 'version';
  v_lines constant jsonb := nullif(p_command -> 'lines', 'null');
  v_unlisted constant boolean := (p_command ->> 'unlisted')::boolean;
  v_ids text[];
  v_newest boolean;
  v_newest_fulfilled boolean;
begin
  select coalesce(v_version > o.body_version, true) and v_lines is not null,
    v_unlisted and coalesce(v_version > o.fulfilled_version, true)
  into v_newest, v_newest_fulfilled
  from public.channel_order o where o.tenant_id = p_tenant and o.id = p_order;

  update public.channel_order o
  set cancelled_at = case when (p_command ->> 'cancelled')::boolean then coalesce(o.cancelled_at, now()) else o.cancelled_at end,
      placed_at = coalesce((p_command ->> 'placedAt')::timestamptz, o.placed_at),
      is_test = o.is_test or (p_command ->> 'test')::boolean,
      body_version = case when v_newest then v_version else o.body_version end,
      body_updated_at = case when v_newest then (p_command ->> 'updatedAt')::timestamptz else o.body_updated_at end,
      fulfilled_at = case when v_unlisted then coalesce(o.fulfilled_at, now()) else o.fulfilled_at end,
      fulfilled_version = case when v_newest_fulfilled then v_version else o.fulfilled_version end,
      fulfilled_lines = case when v_newest_fulfilled then v_lines is not null else o.fulfilled_lines end
  where o.tenant_id = p_tenant and o.id = p_order;
  if v_lines is null or not (v_newest or v_newest_fulfilled) then
    return;
  end if;

  v_ids := array(select s.id from jsonb_to_recordset(v_lines) as s(id text));
  update public.channel_order_line l
  set qty = case when v_newest then null else l.qty end,
      qty_unexplained = case when v_newest then 0 else l.qty_unexplained end,
      qty_fulfilled = case when v_newest_fulfilled then 0 else l.qty_fulfilled end
  where l.tenant_id = p_tenant and l.channel_order_id = p_order and l.external_id <> all (v_ids);
  -- A SKU that was found stays, also when its code is changed here, until the shop tells another code.
  insert into public.channel_order_line as l (tenant_id, channel_order_id, external_id, code, is_goods, qty, qty_unexplained,
    qty_fulfilled)
  select distinct on (s.id) p_tenant, p_order, s.id, s.sku, s.goods, case when v_newest then s.qty end,
    case when v_newest then s.unexplained else 0 end,
    case when v_newest_fulfilled then s.fulfilled when o.fulfilled_lines then 0 end
  from public.channel_order o
  cross join lateral jsonb_to_recordset(v_lines)
    as s(id text, sku text, goods boolean, qty bigint, unexplained bigint, fulfilled bigint)
  where o.tenant_id = p_tenant and o.id = p_order order by s.id, s.qty desc
  on conflict (tenant_id, channel_order_id, external_id) do update
    set code = case when v_newest then excluded.code else l.code end,
        sku_id = case when v_newest and l.code is distinct from excluded.code then null else l.sku_id end,
        is_goods = case when v_newest then excluded.is_goods else l.is_goods end,
        qty = case when v_newest then excluded.qty else l.qty end,
        qty_unexplained = case when v_newest then excluded.qty_unexplained else l.qty_unexplained end,
        qty_fulfilled = case when v_newest_fulfilled then excluded.qty_fulfilled else l.qty_fulfilled end;
end $$;

-- Finds the SKUs of lines that have none, and returns the codes of goods for which there is none. A line is told once, by the
-- delivery that brought it: each further body of its order would tell it again.
create or replace function holdfast.unknown_codes(p_tenant uuid, p_order uuid, p_retry boolean, p_actor text) returns text
language plpgsql volatile security invoker as $$
declare
  v_unknown text;
begin
  update public.channel_order_line l set sku_id = f.sku_id
  from (
    select n.external_id, k.id as sku_id from public.channel_order_line n
    cross join lateral (select k.id from public.sku k where k.tenant_id = p_tenant and k.code = n.code limit 1) k
    where n.tenant_id = p_tenant and n.channel_order_id = p_order and n.sku_id is null and n.is_goods
  ) f
  where l.tenant_id = p_tenant and l.channel_order_id = p_order and l.external_id = f.external_id;

  with unknown as (
    update public.channel_order_line l set kept_by = coalesce(l.kept_by, p_actor)
    where l.tenant_id = p_tenant and l.channel_order_id = p_order and l.sku_id is null and l.is_goods
      and coalesce(l.qty > 0, true) and (p_retry or coalesce(l.kept_by = p_actor, true))
    returning coalesce(l.code, format('(none, line %s)', l.external_id)) as code
  )
  select string_agg(distinct u.code, ', ') into v_unknown from unknown u;
  return v_unknown;
end $$;
