-- Saves under optimistic concurrency: one compare-and-swap UPDATE, which refuses if somebody saved first; the server never
-- merges. match: the versions that the caller has seen, {"any":bool,"tags":["7",…],"status":409|412,"yours":7|null}. A refusal
-- may come after the UPDATE: the caller rolls back to its savepoint. A 400 is not recorded and leaves the key unused.

create or replace function holdfast.matches(p_match jsonb, p_version bigint) returns boolean
language sql immutable parallel safe
return (p_match ->> 'any')::boolean or p_match -> 'tags' ? p_version::text;

-- 409 for a stale baseVersion, 412 for a failed If-Match; with the current document.
create or replace function holdfast.version_conflict(p_match jsonb, p_by text, p_current text) returns holdfast.outcome
language sql stable
return holdfast.refusal((p_match ->> 'status')::int, 'version_conflict',
  format('It was saved by %s since you read it. Look at current, and send your change again on its version, with a new key.',
         coalesce(p_by, 'somebody')),
  format('"yourBaseVersion":%s,"current":%s', coalesce(p_match ->> 'yours', 'null'), p_current));

-- The refusal of an operation on an order, whose row is locked, that names other versions than the present one; or null.
create or replace function holdfast.refuse_version(p_tenant uuid, p_order uuid, p_match jsonb) returns holdfast.outcome
language plpgsql stable security invoker as $$
declare
  v_current record;
begin
  if p_match is null then
    return null;
  end if;
  select o.version, u.display_name into v_current
  from public.wholesale_order o join public.app_user u on u.tenant_id = o.tenant_id and u.id = o.updated_by
  where o.tenant_id = p_tenant and o.id = p_order;
  if holdfast.matches(p_match, v_current.version) then
    return null;
  end if;
  return holdfast.version_conflict(p_match, v_current.display_name, holdfast.order_document(p_tenant, p_order));
end $$;

-- {"tenantId","orderId","userId","match","fields"}; fields: as in create_order; those that are sent are written, null clears.
create or replace function holdfast.save_order(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_order constant uuid := p_call ->> 'orderId';
  v_user constant uuid := p_call ->> 'userId';
  v_match constant jsonb := p_call -> 'match';
  v_fields constant jsonb := p_call -> 'fields';
  v_saved record;
  v_current record;
  v_refused holdfast.outcome;
  v_limit bigint;
  v_exposure_before numeric;
  v_before jsonb;
begin
  if v_fields ? 'lines' then
    -- New prices may raise the exposure. An order's customer never changes, so it may be read before locking.
    v_limit := holdfast.lock_customer(v_tenant, (
      select o.customer_id from public.wholesale_order o where o.tenant_id = v_tenant and o.id = v_order));
  end if;
  v_before := holdfast.order_fields(v_tenant, v_order, v_fields);
  update public.wholesale_order o
  set customer_po = case when v_fields ? 'customerPo' then v_fields ->> 'customerPo' else o.customer_po end,
      ship_window_start = case when v_fields ? 'shipWindowStart' then (v_fields ->> 'shipWindowStart')::date
                          else o.ship_window_start end,
      ship_window_end = case when v_fields ? 'shipWindowEnd' then (v_fields ->> 'shipWindowEnd')::date
                        else o.ship_window_end end,
      notes = case when v_fields ? 'notes' then v_fields ->> 'notes' else o.notes end,
      version = o.version + 1, event_sequence = o.event_sequence + 1,
      updated_by = v_user, updated_at = clock_timestamp()
  where o.tenant_id = v_tenant and o.id = v_order and o.status = 'open' and holdfast.matches(v_match, o.version)
    -- The window as it would be stored; a violation is told apart below.
    and coalesce(case when v_fields ? 'shipWindowStart' then (v_fields ->> 'shipWindowStart')::date else o.ship_window_start end
              <= case when v_fields ? 'shipWindowEnd' then (v_fields ->> 'shipWindowEnd')::date else o.ship_window_end end, true)
  returning o.version, o.event_sequence, o.customer_id into v_saved;

  if not found then
    select o.status, o.version, u.display_name into v_current
    from public.wholesale_order o join public.app_user u on u.tenant_id = o.tenant_id and u.id = o.updated_by
    where o.tenant_id = v_tenant and o.id = v_order;
    if not found then
      return holdfast.refusal(404, 'order_not_found', 'There is no order with this id.');
    elsif v_current.status <> 'open' then
      return holdfast.refusal(409, 'order_not_open',
        format('The order is %s; only an open order can be saved.', v_current.status));
    elsif not holdfast.matches(v_match, v_current.version) then
      return holdfast.version_conflict(v_match, v_current.display_name, holdfast.order_document(v_tenant, v_order));
    end if;
    return holdfast.does_not_fit(case when v_fields ? 'shipWindowStart' then '/shipWindowStart' else '/shipWindowEnd' end,
      'the ship window would start after it ends');
  end if;

  if v_fields ? 'lines' then
    v_exposure_before := holdfast.order_exposure(v_tenant, v_order);
    v_refused := holdfast.replace_lines(v_tenant, v_order, v_fields -> 'lines');
    if v_refused.status is null and v_limit is not null then
      v_refused := holdfast.refuse_raise(v_tenant, v_saved.customer_id, v_limit,
        holdfast.order_exposure(v_tenant, v_order) - v_exposure_before);
    end if;
    if v_refused.status is not null then
      return v_refused;
    end if;
  end if;
  perform holdfast.emit(v_tenant, array[row('order.saved', 'wholesale_order', v_order, v_saved.event_sequence,
    v_saved.customer_id, format('{"version":%s,"changed":%s}', v_saved.version,
      (select coalesce(json_agg(name order by name), '[]') from jsonb_object_keys(v_fields) name)))::holdfast.event]);
  perform holdfast.note_order_change(v_tenant, v_order, 'saved', p_call ->> 'actor',
    jsonb_build_object('version', v_saved.version, 'before', v_before, 'after', holdfast.order_fields(v_tenant, v_order, v_fields)));
  perform holdfast.end_if_shipped(v_tenant, v_order, p_call ->> 'actor');
  return holdfast.success(200, format('{"version":%s,"order":%s}', v_saved.version, holdfast.order_document(v_tenant, v_order)),
    format('"%s"', v_saved.version));
end $$;

-- The refusal of a save that raises the exposure by p_raise_minor beyond the limit, or null. It has been written already: a
-- refusal rolls it back.
create or replace function holdfast.refuse_raise(p_tenant uuid, p_customer uuid, p_limit bigint, p_raise_minor numeric)
returns holdfast.outcome
language plpgsql stable security invoker as $$
declare
  v_exposure numeric;
begin
  if p_raise_minor <= 0 then
    return null;
  end if;
  v_exposure := holdfast.exposure(p_tenant, p_customer) - p_raise_minor;
  if v_exposure + p_raise_minor <= p_limit then
    return null;
  end if;
  return holdfast.refuse_credit(p_limit, v_exposure, p_raise_minor);
end $$;

-- The fields of an order that a save names, as they stand: what its history keeps. A save of lines names quantities and prices.
create or replace function holdfast.order_fields(p_tenant uuid, p_order uuid, p_fields jsonb) returns jsonb
language plpgsql stable security invoker as $$
begin
  return (
    select coalesce(jsonb_object_agg(f.name, f.value), '{}') from (
      select e.key as name, e.value
      from public.wholesale_order o
      cross join lateral jsonb_each(jsonb_build_object('customerPo', o.customer_po, 'shipWindowStart', o.ship_window_start,
        'shipWindowEnd', o.ship_window_end, 'notes', o.notes)) e
      where o.tenant_id = p_tenant and o.id = p_order
      union all
      select 'lines', (select coalesce(jsonb_agg(jsonb_build_object('skuId', l.sku_id, 'code', k.code, 'qty', l.qty,
                         'unitPriceMinor', l.unit_price_minor) order by l.line_no, k.code), '[]')
                       from public.order_line l join public.sku k on k.tenant_id = p_tenant and k.id = l.sku_id
                       where l.tenant_id = p_tenant and l.order_id = p_order)) f
    where p_fields ? f.name);
end $$;

-- Keeps what somebody did to an order, for its history.
create or replace function holdfast.note_order_change(p_tenant uuid, p_order uuid, p_action text, p_actor text, p_details jsonb)
returns void language plpgsql volatile security invoker as $$
begin
  insert into public.order_change (tenant_id, order_id, action, actor, details)
  values (p_tenant, p_order, p_action, coalesce(p_actor, 'unknown'), p_details);
end $$;

-- Replaces the lines of an order whose row is locked; what is not sent is deleted. Nothing falls below what is allocated or
-- shipped. Returns a refusal, or null. A SKU that was deleted and comes back takes its qty_invoiced from this order's invoices,
-- or its units would be invoiced, and count as exposure, a second time.
create or replace function holdfast.replace_lines(p_tenant uuid, p_order uuid, p_lines jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_checked record;
begin
  select string_agg(holdfast.short_line(w.sku_id, w.qty, 0), ',' order by w.ord)
           filter (where w.ord is not null and s.id is null) as unknown,
         string_agg(holdfast.short_line(coalesce(w.sku_id, l.sku_id), coalesce(w.qty, 0), l.qty_allocated + l.qty_shipped), ','
             order by w.ord nulls last, l.line_no)
           filter (where coalesce(w.qty, 0) < l.qty_allocated + l.qty_shipped) as below,
         min(w.ord) filter (where w.unit_price_minor is null and l.sku_id is null and s.id is not null) as unpriced,
         coalesce(sum(w.qty * coalesce(w.unit_price_minor, l.unit_price_minor)::numeric), 0) as total_minor
  into v_checked
  from (select (x.line ->> 'skuId')::uuid as sku_id, (x.line ->> 'qty')::bigint as qty,
               (x.line ->> 'unitPriceMinor')::bigint as unit_price_minor, x.ord
        from jsonb_array_elements(p_lines) with ordinality as x(line, ord)) w
  full join (select * from public.order_line where tenant_id = p_tenant and order_id = p_order) l using (sku_id)
  left join public.sku s on s.tenant_id = p_tenant and s.id = w.sku_id;

  if v_checked.unknown is not null then
    return holdfast.refusal(422, 'unknown_sku', 'There is no SKU with this id; see lines.',
      format('"lines":[%s]', v_checked.unknown));
  elsif v_checked.unpriced is not null then
    return holdfast.does_not_fit(format('/lines/%s/unitPriceMinor', v_checked.unpriced - 1),
      'is required for a SKU that is new on the order');
  elsif v_checked.total_minor > 9007199254740991 then
    return holdfast.does_not_fit('/lines', 'the order''s total would pass 2^53-1 minor units');
  elsif v_checked.below is not null then
    return holdfast.refusal(422, 'below_allocated',
      'A line cannot fall below what is allocated or shipped; see lines (available holds that number). Release first.',
      format('"lines":[%s]', v_checked.below));
  end if;

  delete from public.order_line l
  where l.tenant_id = p_tenant and l.order_id = p_order
    and not exists (select from jsonb_array_elements(p_lines) x where (x ->> 'skuId')::uuid = l.sku_id);
  insert into public.order_line as l (tenant_id, order_id, sku_id, line_no, qty, unit_price_minor, qty_invoiced)
  select p_tenant, p_order, w.sku_id, w.ord, w.qty,
    coalesce(w.unit_price_minor, (select o.unit_price_minor from public.order_line o
                                  where o.tenant_id = p_tenant and o.order_id = p_order and o.sku_id = w.sku_id)),
    coalesce((select sum(x.qty) from public.invoice i
              join public.invoice_line x on x.tenant_id = i.tenant_id and x.invoice_id = i.id
              where i.tenant_id = p_tenant and i.order_id = p_order and i.status <> 'void' and x.sku_id = w.sku_id), 0)
  from (select (x.line ->> 'skuId')::uuid as sku_id, (x.line ->> 'qty')::bigint as qty,
               (x.line ->> 'unitPriceMinor')::bigint as unit_price_minor, x.ord
        from jsonb_array_elements(p_lines) with ordinality as x(line, ord)) w
  on conflict (tenant_id, order_id, sku_id) do update
    set line_no = excluded.line_no, qty = excluded.qty, unit_price_minor = excluded.unit_price_minor;
  return null;
end $$;
