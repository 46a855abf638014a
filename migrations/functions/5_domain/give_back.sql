-- Gives promised stock back: the reverse of promise(). It lowers the exposure, so it needs no customer lock.
-- Lock order: order -> positions by SKU.
create or replace function holdfast.give_back(p_tenant uuid, p_order uuid, p_lines jsonb, p_actor text,
  p_entry_type text default 'release', p_match jsonb default null) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_customer uuid;
  v_status text;
  v_refused holdfast.outcome;
  v_wanted record;
  v_moves bigint[];
  v_ats bigint[];
begin
  select o.customer_id, o.status into v_customer, v_status from public.wholesale_order o
  where o.tenant_id = p_tenant and o.id = p_order for no key update;
  if not found then
    return holdfast.refusal(404, 'order_not_found', 'There is no order with this id.');
  elsif v_status <> 'open' then
    return holdfast.refusal(409, 'order_not_open', format('The order is %s; only an open order can be released.', v_status));
  end if;
  if p_match is not null then
    v_refused := holdfast.refuse_version(p_tenant, p_order, p_match);
    if v_refused.status is not null then
      return v_refused;
    end if;
  end if;

  v_wanted := holdfast.lines_by_sku(p_lines);
  if cardinality(v_wanted.skus) = 1 then -- move()'s guard is the check
    v_moves := array[-v_wanted.qtys[1]];
    v_ats := holdfast.move(p_tenant, p_order, v_customer, v_wanted.skus, v_moves, p_entry_type, p_actor);
  end if;
  if v_ats is null then
    v_refused := holdfast.refuse_release(p_tenant, p_order, v_wanted.skus, v_wanted.qtys, v_wanted.first_at);
    if v_refused.status is not null then
      return v_refused;
    end if;
    v_moves := array(select -q from unnest(v_wanted.qtys) with ordinality as u(q, ord) order by ord);
    v_ats := holdfast.move(p_tenant, p_order, v_customer, v_wanted.skus, v_moves, p_entry_type, p_actor);
  end if;
  if v_ats is null then
    raise exception 'the position of SKU % holds less than its order lines', v_wanted.skus[1];
  end if;
  if holdfast.book_owed(p_tenant, v_wanted.skus, p_actor) then
    v_ats := array(select p.on_hand + p.on_order - p.allocated from public.sku_position p
                   where p.tenant_id = p_tenant and p.sku_id = any (v_wanted.skus) order by p.sku_id);
  end if;
  return holdfast.moved(p_order, p_lines, v_wanted.skus, v_ats);
end $$;

-- Every rule of a release, and every line that breaks it; null where all hold, and then the positions are locked in order of SKU.
create or replace function holdfast.refuse_release(p_tenant uuid, p_order uuid, p_skus uuid[], p_qtys bigint[],
  p_first_at bigint[]) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_absent text;
  v_exceeding text;
begin
  select string_agg(holdfast.short_line(w.sku_id, w.qty, 0), ',' order by w.first_at) filter (where l.sku_id is null),
         string_agg(holdfast.short_line(w.sku_id, w.qty, l.qty_allocated), ',' order by w.first_at)
           filter (where w.qty > l.qty_allocated)
  into v_absent, v_exceeding
  from unnest(p_skus, p_qtys, p_first_at) as w(sku_id, qty, first_at)
  left join public.order_line l on l.tenant_id = p_tenant and l.order_id = p_order and l.sku_id = w.sku_id;
  if v_absent is not null then
    return holdfast.refuse_absent(p_tenant, p_skus, p_qtys, p_first_at, v_absent);
  elsif v_exceeding is not null then
    return holdfast.refusal(422, 'exceeds_allocated', 'The order holds fewer units than this; see lines.',
      format('"lines":[%s]', v_exceeding));
  end if;
  perform pg_advisory_xact_lock(holdfast.lock_class_sku(), uuid_hash(p_skus[1]));
  perform from public.sku_position p
  where p.tenant_id = p_tenant and p.sku_id = any (p_skus) order by p.sku_id for no key update;
  return null;
end $$;
