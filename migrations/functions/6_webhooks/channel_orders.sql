-- A channel order's state: a function of its facts, of what it has, and of what is to be had. See ARCHITECTURE.md, "Channel orders".

-- What a channel order wants, by SKU. Of each line: what is ordered, less what was shipped; what was refunded gives back, what was
-- refunded and not restocked is written off. Cancelled and returned units are told apart: cancelled ones have not left the house
-- as far as there are such, returned ones have.
create or replace function holdfast.channel_targets(p_tenant uuid, p_order uuid) returns setof holdfast.channel_target
language sql stable security invoker as $$
  select l.sku_id, sum(case when o.ended then 0 else rest.qty - off.qty end)::bigint, sum(off.qty)::bigint,
    sum(shipped.qty - back.shipped)::bigint
  from (
    select o.id, o.body_updated_at, o.fulfilled_at, o.cancelled_at is not null or o.deleted_at is not null as ended
    from public.channel_order o
    where o.tenant_id = p_tenant and o.id = p_order
      and not (o.is_test and (select s.ignores_test_orders from public.shopify_shop s where s.domain = o.shop_domain) is true)
  ) o
  join public.channel_order_line l on l.tenant_id = p_tenant and l.channel_order_id = o.id and l.sku_id is not null and l.is_goods
  -- Lateral look-ups by line: a join would compare all lines of an order with each other.
  cross join lateral (
    select coalesce(sum(r.qty), 0) as known,
      coalesce(sum(r.qty) filter (where r.restock_type in ('cancel', 'legacy_restock')), 0) as cancelled,
      coalesce(sum(r.qty) filter (where r.restock_type = 'return'), 0) as returned,
      coalesce(sum(r.qty) filter (where r.restock_type = 'no_restock'), 0) as not_restocked
    from public.channel_refund_line r
    where r.tenant_id = p_tenant and r.channel_order_id = o.id and r.line_external_id = l.external_id) refunded
  cross join lateral (
    select coalesce(sum(d.qty), 0) as qty from public.channel_disposition d
    where d.tenant_id = p_tenant and d.channel_order_id = o.id and d.line_external_id = l.external_id) disposed
  cross join lateral (
    select coalesce(sum(e.delta), 0) as delta from public.channel_edit_line e
    where e.tenant_id = p_tenant and e.channel_order_id = o.id and e.line_external_id = l.external_id
      and coalesce(e.committed_at > o.body_updated_at, true)) edited
  cross join lateral (
    select greatest(0, coalesce(l.qty + least(refunded.known, l.qty_unexplained) + edited.delta, 0)) as qty) ordered
  cross join lateral (
    select coalesce(sum(f.qty), 0) as qty from public.channel_fulfillment_line f
    where f.tenant_id = p_tenant and f.channel_order_id = o.id and f.line_external_id = l.external_id) listed
  cross join lateral (
    select greatest(listed.qty, case when o.fulfilled_at is not null and not o.ended then
      coalesce(l.qty_fulfilled, ordered.qty - refunded.cancelled - refunded.not_restocked) else 0 end) as qty) shipped
  cross join lateral (select greatest(0, ordered.qty - shipped.qty) as qty) unshipped
  cross join lateral (select least(refunded.cancelled, unshipped.qty) as qty) cancelled
  -- Of refunds and dispositions of what has left, the larger.
  cross join lateral (
    select greatest(refunded.returned + refunded.cancelled - cancelled.qty, disposed.qty) as qty) returned
  cross join lateral (
    select least(returned.qty, shipped.qty) as shipped,
      cancelled.qty + least(greatest(0, returned.qty - shipped.qty), unshipped.qty - cancelled.qty) as unshipped) back
  cross join lateral (select unshipped.qty - back.unshipped as qty) rest
  cross join lateral (select least(refunded.not_restocked, rest.qty) as qty) off
  group by l.sku_id
$$;

-- What the facts say now, of the SKUs of which they said something else before.
create or replace function holdfast.channel_news(p_tenant uuid, p_order uuid) returns setof holdfast.channel_target
language sql stable security invoker as $$
  select n.sku_id, n.wanted, n.written_off, n.shipped
  from (
    select t.sku_id, sum(t.wanted)::bigint as wanted, sum(t.written_off)::bigint as written_off, sum(t.shipped)::bigint as shipped
    from (
      select t.* from holdfast.channel_targets(p_tenant, p_order) t
      union all
      select h.sku_id, 0, 0, 0 from public.channel_hold h where h.tenant_id = p_tenant and h.channel_order_id = p_order
    ) t group by t.sku_id
  ) n
  left join lateral (
    select h.qty_wanted, h.qty_written_off, h.qty_shipped from public.channel_hold h
    where h.tenant_id = p_tenant and h.channel_order_id = p_order and h.sku_id = n.sku_id limit 1) h on true
  where (n.wanted, n.written_off, n.shipped)
    <> (coalesce(h.qty_wanted, 0), coalesce(h.qty_written_off, 0), coalesce(h.qty_shipped, 0))
  order by n.sku_id
$$;

-- What the order is to have of each SKU. Shipped units come first: they have left. Then the wanted ones are held, as far as there
-- are any: those that it has, and ATS. Last come those that are written off: what is missing of them never was there. p_free: the
-- ATS of each SKU before units came back from this order (take_back); those count as units that it has. The positions are locked.
create or replace function holdfast.channel_plan(p_tenant uuid, p_order uuid, p_news holdfast.channel_target[], p_free bigint[])
returns setof holdfast.channel_change
language sql stable security invoker as $$
  select n.sku_id, held.qty, taken.qty - n.shipped - held.qty, h.qty_shipped + h.qty_lost - (taken.qty - held.qty) + beyond.qty,
    held.qty - h.qty_held, beyond.qty, greatest(0, n.wanted - held.qty - (h.qty_wanted - h.qty_held))
  from unnest(p_news) with ordinality as n(sku_id, wanted, written_off, shipped, ord)
  cross join lateral (
    select h.* from public.channel_hold h
    where h.tenant_id = p_tenant and h.channel_order_id = p_order and h.sku_id = n.sku_id limit 1) h
  cross join lateral (
    select p.on_hand + p.on_order - p.allocated as ats from public.sku_position p
    where p.tenant_id = p_tenant and p.sku_id = n.sku_id limit 1) p
  cross join lateral (
    select h.qty_held + h.qty_lost + h.qty_shipped + p.ats - p_free[n.ord] as has, n.wanted + n.written_off + n.shipped as needs,
      -- Written off when there was none: it does not take what has come since.
      least(h.qty_written_off - h.qty_lost, n.written_off) as never_there) own
  cross join lateral (
    select greatest(n.shipped, least(own.needs,
      own.has + least(p_free[n.ord], greatest(0, own.needs - own.never_there - own.has)))) as qty) taken
  cross join lateral (select least(n.wanted, taken.qty - n.shipped) as qty) held
  cross join lateral (select greatest(0, taken.qty - own.has - p_free[n.ord]) as qty) beyond
  order by n.ord
$$;

-- Units that are no longer shipped are on hand again; what the books owe is taken from them.
create or replace function holdfast.take_back(p_tenant uuid, p_order uuid, p_news holdfast.channel_target[], p_actor text)
returns void
language plpgsql volatile security invoker as $$
declare
  v_back holdfast.position_change[];
begin
  v_back := array(
    select row(n.sku_id, h.qty_shipped - n.shipped, 0, 0, 'return')::holdfast.position_change from unnest(p_news) n
    cross join lateral (
      select h.qty_shipped from public.channel_hold h
      where h.tenant_id = p_tenant and h.channel_order_id = p_order and h.sku_id = n.sku_id limit 1) h
    where h.qty_shipped > n.shipped order by n.sku_id);
  if cardinality(v_back) > 0 then
    update public.channel_hold h set qty_shipped = n.shipped from unnest(p_news) n
    where h.tenant_id = p_tenant and h.channel_order_id = p_order and h.sku_id = n.sku_id and h.qty_shipped > n.shipped;
    perform holdfast.book(p_tenant, v_back, p_actor);
    perform holdfast.cover_owed(p_tenant, array(select b.sku_id from unnest(v_back) b), true, p_actor);
  end if;
end $$;

-- Brings a channel order, whose row is locked, from what it has to what its facts say. Where they say what they said before,
-- nothing is locked.
create or replace function holdfast.settle_channel_order(p_tenant uuid, p_order uuid, p_actor text) returns void
language plpgsql volatile security invoker as $$
declare
  v_news constant holdfast.channel_target[] := array(
    select n::holdfast.channel_target from holdfast.channel_news(p_tenant, p_order) n order by n.sku_id);
  v_skus constant uuid[] := array(select n.sku_id from unnest(v_news) n);
  v_told bigint[];
  v_plan holdfast.channel_change[];
  v_change holdfast.channel_change;
  v_taken holdfast.channel_move[] := '{}';
  v_missing holdfast.channel_move[];
  v_owed bigint[];
begin
  if cardinality(v_skus) = 0 then
    return;
  end if;
  perform from public.sku_position p
  where p.tenant_id = p_tenant and p.sku_id = any (v_skus) order by p.sku_id for no key update;
  insert into public.channel_hold (tenant_id, channel_order_id, sku_id, placed_at, external_id)
  select p_tenant, p_order, k.id, o.placed_at, o.external_id
  from public.channel_order o cross join unnest(v_skus) as k(id)
  where o.tenant_id = p_tenant and o.id = p_order
  on conflict do nothing;

  v_told := holdfast.ats_of(p_tenant, v_skus);
  perform holdfast.take_back(p_tenant, p_order, v_news, p_actor);
  v_plan := array(select c::holdfast.channel_change from holdfast.channel_plan(p_tenant, p_order, v_news, v_told) c);
  foreach v_change in array v_plan loop
    if v_change.beyond > 0 then
      v_taken := v_taken
        || holdfast.take_from_channel_orders(p_tenant, p_order, v_change.sku_id, v_change.beyond, p_actor);
    end if;
  end loop;
  perform holdfast.book_plan(p_tenant, p_order, v_news, v_plan, v_taken, p_actor);

  v_missing := array(select row(p_order, c.sku_id, c.missing)::holdfast.channel_move from unnest(v_plan) c)
    || array(select row(t.channel_order_id, t.sku_id, -t.qty)::holdfast.channel_move from unnest(v_taken) t);
  v_owed := holdfast.owe_counted(p_tenant, p_order, v_skus, array(
    select c.beyond + coalesce((select sum(t.qty) from unnest(v_taken) t where t.sku_id = c.sku_id), 0)::bigint
    from unnest(v_plan) c order by c.sku_id));
  perform holdfast.ease_missing(p_tenant, v_missing, p_actor, 'no longer wanted');
  perform holdfast.count_missing(p_tenant, v_missing, v_skus, v_owed);
  perform holdfast.serve_channel_orders(p_tenant, v_skus, p_actor);
  perform holdfast.tell_ats(p_tenant, v_skus, v_told);
end $$;

-- Writes the hold, the position and both ledgers of each change. What left beyond all that the order could have was taken from
-- other channel orders (p_taken), as far as they had it; for the rest the books stay as they are: it is owed.
create or replace function holdfast.book_plan(p_tenant uuid, p_order uuid, p_news holdfast.channel_target[],
  p_plan holdfast.channel_change[], p_taken holdfast.channel_move[], p_actor text) returns void
language plpgsql volatile security invoker as $$
declare
  v_changes holdfast.position_change[];
  v_ended constant boolean := (select o.cancelled_at is not null or o.deleted_at is not null from public.channel_order o
                               where o.tenant_id = p_tenant and o.id = p_order);
begin
  v_changes := array(
    select row(c.sku_id, c.on_hand - taken.qty, 0, c.allocated,
      case when c.on_hand > 0 then 'return' when n.shipped > h.qty_shipped then 'ship' else 'write_off' end)::holdfast.position_change
    from unnest(p_plan) with ordinality as c(sku_id, held, lost, on_hand, allocated, beyond, missing, ord)
    join unnest(p_news) with ordinality as n(sku_id, wanted, written_off, shipped, ord) on n.ord = c.ord
    cross join lateral (
      select h.qty_shipped from public.channel_hold h
      where h.tenant_id = p_tenant and h.channel_order_id = p_order and h.sku_id = c.sku_id limit 1) h
    cross join lateral (
      select coalesce(-sum(t.qty), 0)::bigint as qty from unnest(p_taken) t where t.sku_id = c.sku_id) taken
    order by c.sku_id);
  insert into public.allocation_ledger (tenant_id, order_id, order_kind, sku_id, qty, entry_type, actor)
  select p_tenant, p_order, 'channel', m.sku_id, m.allocated,
    case when m.allocated > 0 then 'allocate' when m.entry_type = 'ship' then 'ship' when v_ended then 'cancel' else 'release' end,
    p_actor
  from unnest(v_changes) m where m.allocated <> 0;
  update public.channel_hold h
  set qty_wanted = n.wanted, qty_written_off = n.written_off, qty_shipped = n.shipped, qty_held = c.held, qty_lost = c.lost,
      placed_at = (select o.placed_at from public.channel_order o where o.tenant_id = p_tenant and o.id = p_order)
  from unnest(p_news) with ordinality as n(sku_id, wanted, written_off, shipped, ord)
  join unnest(p_plan) with ordinality as c(sku_id, held, lost, on_hand, allocated, beyond, missing, ord) on c.ord = n.ord
  where h.tenant_id = p_tenant and h.channel_order_id = p_order and h.sku_id = n.sku_id;
  perform holdfast.book(p_tenant, v_changes, p_actor);
end $$;
