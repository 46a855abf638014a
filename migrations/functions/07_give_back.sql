-- Gives promised stock back: the mirror of promise(). Lowers exposure, so it needs no customer lock.
-- Lock order: order -> positions by SKU.
create or replace function holdfast.give_back(p_tenant uuid, p_order uuid, p_lines jsonb, p_actor text,
  p_entry_type text default 'release') returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_order record;
  v_wanted record;
  v_checked record;
  v_ats bigint[];
begin
  select o.customer_id, o.status into v_order from public.wholesale_order o
  where o.tenant_id = p_tenant and o.id = p_order for no key update;
  if not found then
    return holdfast.refusal(404, 'order_not_found', 'There is no order with this id.');
  elsif v_order.status <> 'open' then
    return holdfast.refusal(409, 'order_not_open', format('The order is %s; only an open order can be released.', v_order.status));
  end if;

  select * into v_wanted from holdfast.wanted(p_lines);
  select string_agg(holdfast.short_line(r.sku_id, r.qty, 0), ',' order by r.first_at) filter (where l.sku_id is null)
           as absent,
         string_agg(holdfast.short_line(r.sku_id, r.qty, l.qty_allocated), ',' order by r.first_at)
           filter (where r.qty > l.qty_allocated) as exceeding
  into v_checked
  from unnest(v_wanted.skus, v_wanted.qtys, v_wanted.first_at) as r(sku_id, qty, first_at)
  left join public.order_line l on l.tenant_id = p_tenant and l.order_id = p_order and l.sku_id = r.sku_id;
  if v_checked.absent is not null then
    return holdfast.refuse_absent(p_tenant, v_wanted.skus, v_wanted.qtys, v_wanted.first_at, v_checked.absent);
  end if;
  if v_checked.exceeding is not null then
    return holdfast.refusal(422, 'exceeds_allocated', 'The order holds fewer units than this; see lines.',
      format('"lines":[%s]', v_checked.exceeding));
  end if;

  if cardinality(v_wanted.skus) > 1 then
    perform from public.sku_position p
    where p.tenant_id = p_tenant and p.sku_id = any (v_wanted.skus) order by p.sku_id for no key update;
  end if;
  v_ats := holdfast.move(p_tenant, p_order, v_order.customer_id, v_wanted.skus,
    (select array_agg(-q order by ord) from unnest(v_wanted.qtys) with ordinality as x(q, ord)), p_entry_type, p_actor);
  if v_ats is null then
    raise exception 'the position of SKU % holds less than its order lines', v_wanted.skus[1];
  end if;
  return holdfast.moved(p_order, p_lines, v_wanted.skus, v_ats);
end $$;
