-- Promises what there is: only the ordered quantity, the credit limit and the ATS cut a line. Lines are served in the order sent, a
-- repeated SKU too; the limit buys whole units, units already invoiced or without a price cost nothing, and a later line may
-- still fit. The order's and the customer's locks are held. p_skus: those of p_lines, ascending and distinct.
--
-- Returns 200 with the answer of allocate, each line besides with requested and limitedBy (null or the rule's code); or null,
-- and has changed nothing, where no unit could be promised or a SKU is not on the order.
create or replace function holdfast.promise_partial(p_tenant uuid, p_order uuid, p_customer uuid, p_limit bigint,
  p_skus uuid[], p_lines jsonb, p_actor text) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  -- Limits that nothing reaches.
  v_no_limit constant numeric := 'infinity';
  v_left record;
  v_credit numeric := v_no_limit;
  v_line record;
  v_granted bigint[] := '{}';
  v_limited text[] := '{}';
  v_grant record;
  v_at int;
  v_ats bigint[];
begin
  if p_limit is not null then
    v_credit := greatest(0, p_limit - holdfast.exposure(p_tenant, p_customer));
  end if;
  v_left := holdfast.lock_what_is_left(p_tenant, p_order, p_skus);
  if cardinality(v_left.open) is distinct from cardinality(p_skus) then
    return null;
  end if;
  for v_line in
    select array_position(p_skus, (s.line ->> 'skuId')::uuid) as at, (s.line ->> 'qty')::bigint as qty
    from jsonb_array_elements(p_lines) with ordinality as s(line, ord) order by s.ord
  loop
    v_at := v_line.at;
    v_grant := holdfast.grant_line(v_line.qty, v_left.open[v_at], v_left.ats[v_at], v_left.free[v_at],
      v_left.prices[v_at], v_credit);
    v_granted := v_granted || v_grant.qty;
    v_limited := v_limited || v_grant.limited_by;
    v_left.open[v_at] := v_left.open[v_at] - v_grant.qty;
    v_left.ats[v_at] := v_left.ats[v_at] - v_grant.qty;
    v_left.free[v_at] := greatest(0, v_left.free[v_at] - v_grant.qty);
    v_left.given[v_at] := v_left.given[v_at] + v_grant.qty;
    v_credit := v_credit - v_grant.cost_minor;
  end loop;
  if not 0 < any (v_granted) then
    return null;
  end if;
  perform set_config('app.positions_locked', 'on', true);
  v_ats := holdfast.move(p_tenant, p_order, p_customer,
    array(select g.sku_id from unnest(p_skus, v_left.given) g(sku_id, qty) where g.qty > 0 order by g.sku_id),
    array(select g.qty from unnest(p_skus, v_left.given) g(sku_id, qty) where g.qty > 0 order by g.sku_id),
    'allocate', p_actor);
  if v_ats is null then
    raise exception 'a position that is locked has fewer units than it had';
  end if;
  return holdfast.moved_partial(p_order, p_lines, v_granted, v_limited, p_skus, v_left.ats);
end $$;

-- Locks the positions in order of SKU, and says per SKU, ascending, what is left: units that the order wants, ATS, units that cost
-- nothing (they are invoiced already), price. A SKU that is not on the order is left out.
create or replace function holdfast.lock_what_is_left(p_tenant uuid, p_order uuid, p_skus uuid[], out open bigint[],
  out ats bigint[], out free bigint[], out prices bigint[], out given bigint[])
language plpgsql volatile security invoker as $$
begin
  perform pg_advisory_xact_lock(holdfast.lock_class_sku(), uuid_hash(p_skus[1]));
  perform from public.sku_position p
  where p.tenant_id = p_tenant and p.sku_id = any (p_skus) order by p.sku_id for no key update;
  select array_agg(l.qty - l.qty_allocated - l.qty_shipped order by l.sku_id),
         array_agg(p.on_hand + p.on_order - p.allocated order by l.sku_id),
         array_agg(greatest(0, l.qty_invoiced - l.qty_allocated - l.qty_shipped) order by l.sku_id),
         array_agg(l.unit_price_minor::bigint order by l.sku_id), array_agg(0::bigint order by l.sku_id)
  into open, ats, free, prices, given
  from public.order_line l
  join public.sku_position p on p.tenant_id = p_tenant and p.sku_id = l.sku_id
  where l.tenant_id = p_tenant and l.order_id = p_order and l.sku_id = any (p_skus);
end $$;

-- How much of one line can be promised, what it costs, and the first rule that cut it to that.
create or replace function holdfast.grant_line(p_qty bigint, p_open bigint, p_ats bigint, p_free bigint, p_price bigint,
  p_credit numeric, out qty bigint, out cost_minor numeric, out limited_by text)
language plpgsql immutable as $$
declare
  -- Units that cost nothing, and then as many whole ones as the credit buys.
  v_affordable constant bigint := case when p_price = 0 or p_credit = 'infinity' then p_qty
    else least(p_qty, p_free + floor(greatest(0, p_credit) / p_price)) end;
begin
  qty := greatest(0, least(p_qty, p_open, v_affordable, p_ats));
  cost_minor := p_price::numeric * greatest(0, qty - p_free);
  limited_by := case when qty = p_qty then null
    when p_open <= qty then 'exceeds_ordered'
    when v_affordable <= qty then 'credit_limit_exceeded'
    else 'insufficient_ats' end;
end $$;

-- The answer of a partial allocation: the lines as sent. p_ats: of p_skus, after the whole request.
create or replace function holdfast.moved_partial(p_order uuid, p_lines jsonb, p_granted bigint[], p_limited text[],
  p_skus uuid[], p_ats bigint[]) returns holdfast.outcome
language plpgsql immutable as $$
declare
  v_lines text[];
  v_sku uuid;
begin
  for i in 0 .. jsonb_array_length(p_lines) - 1 loop
    v_sku := p_lines -> i ->> 'skuId';
    v_lines[i] := format('{"skuId":"%s","qty":%s,"atsAfter":%s,"requested":%s,"limitedBy":%s}', v_sku, p_granted[i + 1],
      p_ats[array_position(p_skus, v_sku)], p_lines -> i ->> 'qty', holdfast.quote(p_limited[i + 1]));
  end loop;
  return holdfast.success(200, format('{"ok":true,"orderId":"%s","lines":[%s]}', p_order, array_to_string(v_lines, ',')));
end $$;
