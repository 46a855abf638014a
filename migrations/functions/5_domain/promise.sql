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
  v_turn text; -- for locks taken by assignment, which is not a query as PERFORM is
  v_wanted record;
  v_careful boolean;
  v_outcome holdfast.outcome;
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
    v_turn := pg_advisory_xact_lock_shared(holdfast.lock_class_customer(), uuid_hash(v_customer));
  else
    v_turn := pg_advisory_xact_lock(holdfast.lock_class_customer(), uuid_hash(v_customer));
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
    v_outcome := holdfast.refuse_version(p_tenant, p_order, p_match);
    if v_outcome.status is not null then
      return v_outcome;
    end if;
  end if;
  if v_on_hold then
    return holdfast.refuse_on_hold();
  end if;

  v_wanted := holdfast.lines_by_sku(p_lines);
  if p_partial then
    v_outcome := holdfast.promise_partial(p_tenant, p_order, v_customer, v_limit, v_wanted.skus, p_lines, p_actor);
    if v_outcome.status is not null then
      return v_outcome;
    end if;
    -- Nothing could be promised: the refusal that all or none meets.
  end if;
  -- One SKU and no limit: move()'s guarded UPDATEs are locks and checks. Else, or where such a guard did not hold: lock in order,
  -- check every rule, collect all that break it, and only then move.
  v_careful := p_partial or v_limit is not null or cardinality(v_wanted.skus) > 1;
  loop
    if v_careful then
      v_outcome := holdfast.refuse_promise(p_tenant, p_order, v_customer, v_limit, v_wanted.skus, v_wanted.qtys, v_wanted.first_at);
      if v_outcome.status is not null then
        return v_outcome;
      end if;
    end if;
    v_ats := holdfast.move(p_tenant, p_order, v_customer, v_wanted.skus, v_wanted.qtys, 'allocate', p_actor);
    exit when v_ats is not null;
    if v_careful then
      raise exception 'SKU % of order % was checked under its locks, and could not be moved', v_wanted.skus[1], p_order;
    end if;
    v_careful := true;
  end loop;
  return holdfast.moved(p_order, p_lines, v_wanted.skus, v_ats);
end $$;

-- The lines of a request by SKU, ascending and distinct: units, summed, and the place of its first line.
create or replace function holdfast.lines_by_sku(p_lines jsonb, out skus uuid[], out qtys bigint[], out first_at bigint[])
language plpgsql immutable as $$
begin
  if jsonb_array_length(p_lines) = 1 then -- without a query
    skus := array[(p_lines -> 0 ->> 'skuId')::uuid];
    qtys := array[(p_lines -> 0 ->> 'qty')::bigint];
    first_at := array[1];
    return;
  end if;
  select array_agg(w.sku_id order by w.sku_id), array_agg(w.qty order by w.sku_id), array_agg(w.first_at order by w.sku_id)
  into skus, qtys, first_at
  from (select (s.line ->> 'skuId')::uuid as sku_id, sum((s.line ->> 'qty')::bigint)::bigint as qty, min(s.ord) as first_at
        from jsonb_array_elements(p_lines) with ordinality as s(line, ord) group by 1) w;
end $$;

-- Every rule of a promise, in the contract's order, and every line that breaks it; null where all hold. The order's row is locked,
-- and the customer's where it has a limit; the positions get locked here.
create or replace function holdfast.refuse_promise(p_tenant uuid, p_order uuid, p_customer uuid, p_limit bigint, p_skus uuid[],
  p_qtys bigint[], p_first_at bigint[]) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_absent text;
  v_exceeding text;
  v_raise_minor numeric;
  v_refused holdfast.outcome;
begin
  select string_agg(holdfast.short_line(w.sku_id, w.qty, 0), ',' order by w.first_at) filter (where l.sku_id is null),
         string_agg(holdfast.short_line(w.sku_id, w.qty, l.qty - l.qty_allocated - l.qty_shipped), ',' order by w.first_at)
           filter (where w.qty > l.qty - l.qty_allocated - l.qty_shipped),
         -- Invoiced units count in their invoice: only units above them raise the exposure.
         coalesce(sum(l.unit_price_minor::numeric
           * (greatest(0, l.qty_allocated + w.qty + l.qty_shipped - l.qty_invoiced)
              - greatest(0, l.qty_allocated + l.qty_shipped - l.qty_invoiced))) filter (where p_limit is not null), 0)
  into v_absent, v_exceeding, v_raise_minor
  from unnest(p_skus, p_qtys, p_first_at) as w(sku_id, qty, first_at)
  left join public.order_line l on l.tenant_id = p_tenant and l.order_id = p_order and l.sku_id = w.sku_id;
  if v_absent is not null then
    return holdfast.refuse_absent(p_tenant, p_skus, p_qtys, p_first_at, v_absent);
  elsif v_exceeding is not null then
    return holdfast.refusal(422, 'exceeds_ordered', 'The order wants fewer units than this; see lines.',
      format('"lines":[%s]', v_exceeding));
  end if;
  if p_limit is not null then
    v_refused := holdfast.refuse_for_credit(p_tenant, p_customer, p_limit, v_raise_minor);
    if v_refused.status is not null then
      return v_refused;
    end if;
  end if;
  return holdfast.refuse_for_ats(p_tenant, p_skus, p_qtys, p_first_at);
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
  v_turn text;
  v_short text;
begin
  v_turn := pg_advisory_xact_lock(holdfast.lock_class_sku(), uuid_hash(p_skus[1]));
  -- A row comes out as it is once it is locked, whatever the snapshot holds. The rule stands in a FILTER: as a WHERE it would be
  -- checked below the locking, which would then lock only what looks well.
  select string_agg(holdfast.short_line(p.sku_id, p_qtys[p.place], p.ats), ',' order by p_first_at[p.place])
    filter (where p_qtys[p.place] > p.ats)
  into v_short
  from (select p.sku_id, p.on_hand + p.on_order - p.allocated as ats, width_bucket(p.sku_id, p_skus) as place
        from public.sku_position p where p.tenant_id = p_tenant and p.sku_id = any (p_skus)
        order by p.sku_id for no key update) p;
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
