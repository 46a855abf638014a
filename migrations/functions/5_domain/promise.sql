-- Promises stock to an order: every check, then every move; a refusal leaves nothing written. Knows no key and no HTTP. p_lines:
-- [{"skuId","qty"}, …] as sent; several lines of a SKU count as their sum. p_match: the request's If-Match, or null.
-- p_partial: promise what there is, see promise_partial().
--
-- Lock order: customer -> order -> positions by SKU. What a lock protects is read in a later statement, whose snapshot is
-- younger. Requests of a customer without a limit run side by side: they share an advisory lock, which the first one that finds a
-- limit takes exclusively, so that it sees what was promised before there was one.
create or replace function holdfast.promise(p_tenant uuid, p_order uuid, p_lines jsonb, p_actor text,
  p_match jsonb default null, p_partial boolean default false) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_customer uuid;
  v_limit bigint;
  v_status text;
  v_on_hold boolean;
  v_set_meanwhile boolean;
  v_wanted record;
  v_refused holdfast.outcome;
  v_partial holdfast.outcome;
  v_ats bigint[];
begin
  -- An order's customer never changes, so it may be read before locking.
  select o.customer_id, c.credit_limit_minor into v_customer, v_limit
  from public.wholesale_order o join public.customer c on c.tenant_id = o.tenant_id and c.id = o.customer_id
  where o.tenant_id = p_tenant and o.id = p_order;
  if not found then
    return holdfast.refusal(404, 'order_not_found', 'There is no order with this id.');
  end if;
  if v_limit is null then
    perform pg_advisory_xact_lock_shared(holdfast.lock_class_customer(), uuid_hash(v_customer));
  else
    perform pg_advisory_xact_lock(holdfast.lock_class_customer(), uuid_hash(v_customer));
    perform from public.customer c where c.tenant_id = p_tenant and c.id = v_customer for no key update;
  end if;
  select o.status, c.credit_limit_minor, c.on_hold, v_limit is null and c.credit_limit_minor is not null
  into v_status, v_limit, v_on_hold, v_set_meanwhile
  from public.wholesale_order o join public.customer c on c.tenant_id = o.tenant_id and c.id = o.customer_id
  where o.tenant_id = p_tenant and o.id = p_order for no key update of o;
  if v_set_meanwhile then
    raise exception 'a credit limit was set meanwhile: retry' using errcode = 'serialization_failure';
  end if;
  if v_status <> 'open' then
    return holdfast.refusal(409, 'order_not_open', format('The order is %s; only an open order can be allocated.', v_status));
  end if;
  if p_match is not null then
    v_refused := holdfast.refuse_version(p_tenant, p_order, p_match);
    if v_refused.status is not null then
      return v_refused;
    end if;
  end if;

  if v_on_hold then
    return holdfast.refuse_on_hold();
  end if;

  -- Per distinct SKU, ascending: units wanted, its first place in p_lines, and what the rules need.
  select array_agg(w.sku_id order by w.sku_id) as skus, array_agg(w.qty order by w.sku_id) as qtys,
         array_agg(w.first_at order by w.sku_id) as first_at,
         array_agg(l.qty - l.qty_allocated - l.qty_shipped order by w.sku_id) as open,
         bool_or(l.sku_id is null) as absent, bool_or(w.qty > l.qty - l.qty_allocated - l.qty_shipped) as exceeding,
         -- Read without a lock: only a guess which branch below is the shorter one.
         bool_or(w.qty > p.on_hand + p.on_order - p.allocated) as looks_short,
         -- Invoiced units count in their invoice: only units above them raise the exposure.
         coalesce(sum(l.unit_price_minor::numeric
           * (greatest(0, l.qty_allocated + w.qty + l.qty_shipped - l.qty_invoiced)
              - greatest(0, l.qty_allocated + l.qty_shipped - l.qty_invoiced))), 0) as raise_minor
  into v_wanted
  from (select (s.line ->> 'skuId')::uuid as sku_id, sum((s.line ->> 'qty')::bigint)::bigint as qty, min(s.ord) as first_at
        from jsonb_array_elements(p_lines) with ordinality as s(line, ord) group by 1) w
  left join public.order_line l on l.tenant_id = p_tenant and l.order_id = p_order and l.sku_id = w.sku_id
  left join public.sku_position p on p.tenant_id = p_tenant and p.sku_id = w.sku_id;
  if p_partial and not v_wanted.absent then
    v_partial := holdfast.promise_partial(p_tenant, p_order, v_customer, v_limit, p_lines, p_actor);
    if v_partial.status is not null then
      return v_partial;
    end if;
    -- Nothing could be promised: the refusal that all or none meets.
  end if;
  if v_wanted.absent or v_wanted.exceeding then
    return holdfast.refuse_lines(p_tenant, v_wanted.skus, v_wanted.qtys, v_wanted.first_at, v_wanted.open);
  end if;
  if v_limit is not null then
    v_refused := holdfast.refuse_for_credit(p_tenant, v_customer, v_limit, v_wanted.raise_minor);
    if v_refused.status is not null then
      return v_refused;
    end if;
  end if;

  -- One SKU: the guarded UPDATE is lock and check. Several, or one that looks short: lock in order, collect all short, move.
  for v_try in 1 .. 2 loop
    if v_try = 2 or v_wanted.looks_short or cardinality(v_wanted.skus) > 1 then
      v_refused := holdfast.refuse_for_ats(p_tenant, v_wanted.skus, v_wanted.qtys, v_wanted.first_at);
      if v_refused.status is not null then
        return v_refused;
      end if;
    end if;
    v_ats := holdfast.move(p_tenant, p_order, v_customer, v_wanted.skus, v_wanted.qtys, 'allocate', p_actor);
    exit when v_ats is not null;
  end loop;
  return holdfast.moved(p_order, p_lines, v_wanted.skus, v_ats);
end $$;

-- Refuses SKUs that no line of the order has: unknown ones first, else those that are not on this order (p_absent).
create or replace function holdfast.refuse_absent(p_tenant uuid, p_skus uuid[], p_qtys bigint[], p_first_at bigint[],
  p_absent text) returns holdfast.outcome
language plpgsql stable security invoker as $$
declare
  v_unknown text;
begin
  select string_agg(holdfast.short_line(r.sku_id, r.qty, 0), ',' order by r.first_at) into v_unknown
  from unnest(p_skus, p_qtys, p_first_at) as r(sku_id, qty, first_at)
  where not exists (select from public.sku s where s.tenant_id = p_tenant and s.id = r.sku_id);
  if v_unknown is not null then
    return holdfast.refusal(422, 'unknown_sku', 'There is no SKU with this id; see lines.', format('"lines":[%s]', v_unknown));
  end if;
  return holdfast.refusal(422, 'sku_not_on_order', 'The order has no line for this SKU; see lines.',
    format('"lines":[%s]', p_absent));
end $$;

-- Refuses SKUs that are not on the order (p_open null), else those of which fewer units are open (p_open) than wanted.
create or replace function holdfast.refuse_lines(p_tenant uuid, p_skus uuid[], p_qtys bigint[], p_first_at bigint[],
  p_open bigint[]) returns holdfast.outcome
language plpgsql stable security invoker as $$
declare
  v_absent text;
  v_exceeding text;
begin
  select string_agg(holdfast.short_line(r.sku_id, r.qty, 0), ',' order by r.first_at) filter (where r.open is null),
         string_agg(holdfast.short_line(r.sku_id, r.qty, r.open), ',' order by r.first_at) filter (where r.qty > r.open)
  into v_absent, v_exceeding
  from unnest(p_skus, p_qtys, p_first_at, p_open) as r(sku_id, qty, first_at, open);
  if v_absent is not null then
    return holdfast.refuse_absent(p_tenant, p_skus, p_qtys, p_first_at, v_absent);
  end if;
  return holdfast.refusal(422, 'exceeds_ordered', 'The order wants fewer units than this; see lines.',
    format('"lines":[%s]', v_exceeding));
end $$;

-- Refuses what would raise a customer's exposure above its limit, or returns null. The customer's row is locked.
create or replace function holdfast.refuse_for_credit(p_tenant uuid, p_customer uuid, p_limit bigint, p_raise_minor numeric)
returns holdfast.outcome
language plpgsql stable security invoker as $$
declare
  v_exposure constant numeric := holdfast.exposure(p_tenant, p_customer);
begin
  -- What adds nothing passes, also where the customer is over its limit already.
  if p_raise_minor <= 0 or v_exposure + p_raise_minor <= p_limit then
    return null;
  end if;
  return holdfast.refuse_credit(p_limit, v_exposure, p_raise_minor);
end $$;

-- Locks positions in order of SKU, and refuses with every SKU of which fewer units are available than wanted; or null.
create or replace function holdfast.refuse_for_ats(p_tenant uuid, p_skus uuid[], p_qtys bigint[], p_first_at bigint[])
returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_short text;
begin
  perform pg_advisory_xact_lock(holdfast.lock_class_sku(), uuid_hash(p_skus[1]));
  perform from public.sku_position p
  where p.tenant_id = p_tenant and p.sku_id = any (p_skus) order by p.sku_id for no key update;
  select string_agg(holdfast.short_line(r.sku_id, r.qty, p.on_hand + p.on_order - p.allocated), ',' order by r.first_at)
  into v_short
  from unnest(p_skus, p_qtys, p_first_at) as r(sku_id, qty, first_at)
  join public.sku_position p on p.tenant_id = p_tenant and p.sku_id = r.sku_id
  where r.qty > p.on_hand + p.on_order - p.allocated;
  if v_short is null then
    return null;
  end if;
  return holdfast.refusal(422, 'insufficient_ats', 'Fewer units are available to sell than this; see lines.',
    format('"lines":[%s]', v_short));
end $$;

-- The answer of allocate and release: the lines as sent, each with its SKU's ATS after the whole request.
create or replace function holdfast.moved(p_order uuid, p_lines jsonb, p_skus uuid[], p_ats bigint[])
returns holdfast.outcome
language plpgsql immutable as $$
declare
  v_lines text[];
  v_sku uuid;
begin
  for i in 0 .. jsonb_array_length(p_lines) - 1 loop
    v_sku := p_lines -> i ->> 'skuId';
    v_lines[i] := format('{"skuId":"%s","qty":%s,"atsAfter":%s}', v_sku, p_lines -> i ->> 'qty',
      p_ats[array_position(p_skus, v_sku)]);
  end loop;
  return holdfast.success(200, format('{"ok":true,"orderId":"%s","lines":[%s]}', p_order, array_to_string(v_lines, ',')));
end $$;
