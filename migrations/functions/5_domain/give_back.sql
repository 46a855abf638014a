-- Gives promised stock back: the reverse of promise(). It lowers the exposure, so it needs no customer lock.
-- Lock order: order -> positions by SKU.
create or replace function holdfast.give_back(p_tenant uuid, p_order uuid, p_lines jsonb, p_actor text,
  p_entry_type text default 'release', p_match jsonb default null) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_order_row record;
  v_refused holdfast.outcome;
  v_wanted record;
  v_ats bigint[];
begin
  select o.customer_id, o.status into v_order_row from public.wholesale_order o
  where o.tenant_id = p_tenant and o.id = p_order for no key update;
  if not found then
    return holdfast.refusal(404, 'order_not_found', 'There is no order with this id.');
  elsif v_order_row.status <> 'open' then
    return holdfast.refusal(409, 'order_not_open',
      format('The order is %s; only an open order can be released.', v_order_row.status));
  end if;
  v_refused := holdfast.refuse_version(p_tenant, p_order, p_match);
  if v_refused.status is not null then
    return v_refused;
  end if;

  select array_agg(w.sku_id order by w.sku_id) as skus, array_agg(w.qty order by w.sku_id) as qtys,
         array_agg(-w.qty order by w.sku_id) as moves, array_agg(w.first_at order by w.sku_id) as first_at,
         string_agg(holdfast.short_line(w.sku_id, w.qty, 0), ',' order by w.first_at) filter (where l.sku_id is null)
           as absent,
         string_agg(holdfast.short_line(w.sku_id, w.qty, l.qty_allocated), ',' order by w.first_at)
           filter (where w.qty > l.qty_allocated) as exceeding
  into v_wanted
  from (select (s.line ->> 'skuId')::uuid as sku_id, sum((s.line ->> 'qty')::bigint)::bigint as qty, min(s.ord) as first_at
        from jsonb_array_elements(p_lines) with ordinality as s(line, ord) group by 1) w
  left join public.order_line l on l.tenant_id = p_tenant and l.order_id = p_order and l.sku_id = w.sku_id;
  if v_wanted.absent is not null then
    return holdfast.refuse_absent(p_tenant, v_wanted.skus, v_wanted.qtys, v_wanted.first_at, v_wanted.absent);
  end if;
  if v_wanted.exceeding is not null then
    return holdfast.refusal(422, 'exceeds_allocated', 'The order holds fewer units than this; see lines.',
      format('"lines":[%s]', v_wanted.exceeding));
  end if;

  if cardinality(v_wanted.skus) > 1 then
    perform pg_advisory_xact_lock(holdfast.lock_class_sku(), uuid_hash(v_wanted.skus[1]));
    perform from public.sku_position p
    where p.tenant_id = p_tenant and p.sku_id = any (v_wanted.skus) order by p.sku_id for no key update;
  end if;
  v_ats := holdfast.move(p_tenant, p_order, v_order_row.customer_id, v_wanted.skus, v_wanted.moves, p_entry_type, p_actor);
  if v_ats is null then
    raise exception 'the position of SKU % holds less than its order lines', v_wanted.skus[1];
  end if;
  if holdfast.book_owed(p_tenant, v_wanted.skus, p_actor) then
    v_ats := array(select p.on_hand + p.on_order - p.allocated from public.sku_position p
                   where p.tenant_id = p_tenant and p.sku_id = any (v_wanted.skus) order by p.sku_id);
  end if;
  return holdfast.moved(p_order, p_lines, v_wanted.skus, v_ats);
end $$;
