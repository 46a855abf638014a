-- Which orders a list shows. All of it runs inside one STABLE function, page_of_wholesale_order, and so in one snapshot, and is planned
-- as that function says: with its values, and by indexes that have the rows in the order wanted, whatever the statistics say. Under row-level
-- security only leakproof operators can use an index: what begins with q is what lies between q and q with the last code point behind.
--
-- An equality is written as what lies between two rows, where another index too has the rows in the order wanted: of `status = s` with
-- stale statistics the planner walks all orders by time and drops what has another status. A comparison of rows, and an order that names the
-- columns compared, fit one index only.

-- Orders behind a place, newest first, each set of filters by an index that has them in this order.
create or replace function holdfast.orders_newest(p_tenant uuid, p_status text, p_customer uuid, p_after holdfast.order_place,
  p_limit int) returns table (id uuid, created_at timestamptz, number_key text, po_key text, customer_id uuid)
language plpgsql stable security invoker as $$
begin
  if p_customer is not null then
    return query
    select o.* from unnest(case when p_status is null then array['open', 'shipped', 'cancelled'] else array[p_status] end) s(status)
    cross join lateral (
      select o.id, o.created_at, o.number_key, o.po_key, o.customer_id from public.wholesale_order o
      where o.tenant_id = p_tenant and (o.customer_id, o.status) >= (p_customer, s.status)
        and (o.customer_id, o.status, o.created_at, o.id) < (p_customer, s.status, p_after.created_at, p_after.id)
      order by o.customer_id desc, o.status desc, o.created_at desc, o.id desc limit p_limit) o
    order by o.created_at desc, o.id desc limit p_limit;
  elsif p_status is not null then
    return query
    select o.id, o.created_at, o.number_key, o.po_key, o.customer_id from public.wholesale_order o
    where o.tenant_id = p_tenant and o.status >= p_status
      and (o.status, o.created_at, o.id) < (p_status, p_after.created_at, p_after.id)
    order by o.status desc, o.created_at desc, o.id desc limit p_limit;
  else
    return query
    select o.id, o.created_at, o.number_key, o.po_key, o.customer_id from public.wholesale_order o
    where o.tenant_id = p_tenant and (o.created_at, o.id) < (p_after.created_at, p_after.id)
    order by o.created_at desc, o.id desc limit p_limit;
  end if;
end $$;

-- Behind what no text that begins with p_q stands, in the order of bytes.
create or replace function holdfast.prefix_end(p_q text) returns text language sql immutable parallel safe
return p_q || U&'\+10FFFF';

-- The newest orders behind a place whose number, PO or a word of whose customer's name begins with p_q (lower case), with the filters of
-- page_of_wholesale_order: up to limit + 1. What is rare is looked up by the index of each of the three, and sorted; what fits too
-- many to sort is met soon on a walk from the newest on, which is bounded. goes_on: the walk was given up behind this order; what
-- was found up to it is in ids.
create or replace function holdfast.orders_found(p_tenant uuid, p_read jsonb, p_q text, p_after holdfast.order_place,
  out ids uuid[], out goes_on uuid)
language plpgsql stable security invoker as $$
declare
  v_wanted constant int := (p_read ->> 'limit')::int + 1;
  v_status constant text := p_read ->> 'status';
  v_customer constant uuid := p_read ->> 'customerId';
  v_walk_for text[] := '{}';
  v_keyed record;
  v_by_head uuid[] := '{}';
  v_by_head_ats timestamptz[] := '{}';
  v_named record;
  v_walked record;
begin
  select * into v_named from holdfast.customers_named(p_tenant, p_q, v_customer);
  if v_customer is not null and v_named.ids = array[v_customer] then
    ids := array(select n.id from holdfast.orders_newest(p_tenant, v_status, v_customer, p_after, v_wanted) n);
    return;
  end if;
  select * into v_keyed from holdfast.orders_keyed(p_tenant, p_q, v_status, v_customer, p_after);
  if v_keyed.many_numbers and v_status is null and v_customer is null and length(p_q) <= 2 then
    select array_agg(h.id), array_agg(h.created_at) into v_by_head, v_by_head_ats
    from holdfast.orders_by_head(p_tenant, p_q, p_after, v_wanted) h;
  elsif v_keyed.many_numbers then
    v_walk_for := v_walk_for || 'number'::text;
  end if;
  if v_keyed.many_pos then
    v_walk_for := v_walk_for || 'po'::text;
  end if;
  if v_named.many then
    v_walk_for := v_walk_for || 'customer'::text;
  end if;
  select * into v_walked from holdfast.orders_on_a_walk(p_tenant, p_read, p_q, p_after, v_walk_for);
  ids := array(
    select f.id from (
      select k.id, k.created_at from unnest(v_keyed.ids, v_keyed.ats) k(id, created_at)
      union select h.id, h.created_at from unnest(v_by_head, v_by_head_ats) h(id, created_at)
      union select w.id, w.created_at from unnest(v_walked.ids, v_walked.ats) w(id, created_at)
      union select c.id, c.created_at from holdfast.orders_of_customers(p_tenant, v_named.ids, v_status, p_after, v_wanted) c) f
    where v_walked.given_up is null
       or (f.created_at, f.id) >= ((v_walked.given_up).created_at, (v_walked.given_up).id)
    order by f.created_at desc, f.id desc limit v_wanted);
  if v_walked.given_up is not null and cardinality(ids) < v_wanted then
    goes_on := (v_walked.given_up).id;
  end if;
end $$;

-- Orders whose number or PO begins with p_q, with their times; of each of the two all, or none and many.
create or replace function holdfast.orders_keyed(p_tenant uuid, p_q text, p_status text, p_customer uuid,
  p_after holdfast.order_place, out ids uuid[], out ats timestamptz[], out many_numbers boolean, out many_pos boolean)
language plpgsql stable security invoker as $$
declare
  -- Read and sorted in some milliseconds. At a million orders, more of them are met within some thousands of the newest.
  v_few constant int := 4000;
  v_end constant text := holdfast.prefix_end(p_q);
begin
  with hit as materialized (
    (select 'number' as by, o.id, o.created_at, o.status, o.customer_id from public.wholesale_order o
     where o.tenant_id = p_tenant and o.number_key >= p_q and o.number_key < v_end limit v_few + 1)
    union all
    (select 'po', o.id, o.created_at, o.status, o.customer_id from public.wholesale_order o
     where o.tenant_id = p_tenant and o.po_key >= p_q and o.po_key < v_end limit v_few + 1)
  ), many as (
    select count(*) filter (where h.by = 'number') > v_few as numbers, count(*) filter (where h.by = 'po') > v_few as pos from hit h
  )
  select m.numbers, m.pos, array_agg(h.id) filter (where h.id is not null), array_agg(h.created_at) filter (where h.id is not null)
  into many_numbers, many_pos, ids, ats
  from many m
  left join hit h on not case h.by when 'number' then m.numbers else m.pos end
    and (p_status is null or h.status = p_status) and (p_customer is null or h.customer_id = p_customer)
    and (h.created_at, h.id) < (p_after.created_at, p_after.id)
  group by m.numbers, m.pos;
end $$;

-- The newest orders whose number begins with one or two characters, however many do.
create or replace function holdfast.orders_by_head(p_tenant uuid, p_q text, p_after holdfast.order_place, p_limit int)
returns table (id uuid, created_at timestamptz)
language sql stable security invoker as $$
  with recursive head as (
    (select o.number_head as text from public.wholesale_order o
     where o.tenant_id = p_tenant and o.number_head >= p_q and o.number_head < holdfast.prefix_end(p_q)
     order by o.number_head limit 1)
    union all
    select (select o.number_head from public.wholesale_order o
            where o.tenant_id = p_tenant and o.number_head > h.text and o.number_head < holdfast.prefix_end(p_q)
            order by o.number_head limit 1)
    from head h where h.text is not null
  )
  select o.id, o.created_at from head h
  cross join lateral (
    select o.id, o.created_at from public.wholesale_order o
    where o.tenant_id = p_tenant and o.number_head >= h.text
      and (o.number_head, o.created_at, o.id) < (h.text, p_after.created_at, p_after.id)
    order by o.number_head desc, o.created_at desc, o.id desc limit p_limit) o
  order by o.created_at desc, o.id desc limit p_limit
$$;

-- Customers of whose name a word begins with p_q: all, or none and many. p_customer: only whether this one is one of them.
create or replace function holdfast.customers_named(p_tenant uuid, p_q text, p_customer uuid, out ids uuid[], out many boolean)
language plpgsql stable security invoker as $$
declare
  -- Each is looked up by itself.
  v_few constant int := 1000;
  v_end constant text := holdfast.prefix_end(p_q);
begin
  if p_customer is not null then
    ids := array(select w.customer_id from public.customer_word w
                 where w.tenant_id = p_tenant and (w.customer_id, w.word) >= (p_customer, p_q)
                   and (w.customer_id, w.word) < (p_customer, v_end) limit 1);
  else
    ids := array(select w.customer_id from public.customer_word w
                 where w.tenant_id = p_tenant and w.word >= p_q and w.word < v_end order by w.word limit v_few + 1);
  end if;
  many := cardinality(ids) > v_few;
  ids := case when many then '{}' else array(select distinct i from unnest(ids) i) end;
end $$;

-- The newest orders of some customers. Only those whose own newest order is among the newest can have one on the page.
create or replace function holdfast.orders_of_customers(p_tenant uuid, p_customers uuid[], p_status text,
  p_after holdfast.order_place, p_limit int) returns table (id uuid, created_at timestamptz)
language sql stable security invoker as $$
  with status as materialized (
    select s.status from unnest(case when p_status is null then array['open', 'shipped', 'cancelled'] else array[p_status] end) s(status)
  ), first as materialized (
    select o.customer_id, max(o.created_at) as created_at from unnest(p_customers) c(id)
    cross join status s
    cross join lateral (
      select o.customer_id, o.created_at from public.wholesale_order o
      where o.tenant_id = p_tenant and (o.customer_id, o.status) >= (c.id, s.status)
        and (o.customer_id, o.status, o.created_at, o.id) < (c.id, s.status, p_after.created_at, p_after.id)
      order by o.customer_id desc, o.status desc, o.created_at desc, o.id desc limit 1) o
    group by o.customer_id order by 2 desc limit p_limit
  )
  select o.id, o.created_at from first f
  cross join status s
  cross join lateral (
    select o.id, o.created_at from public.wholesale_order o
    where o.tenant_id = p_tenant and (o.customer_id, o.status) >= (f.customer_id, s.status)
      and (o.customer_id, o.status, o.created_at, o.id) < (f.customer_id, s.status, p_after.created_at, p_after.id)
    order by o.customer_id desc, o.status desc, o.created_at desc, o.id desc limit p_limit) o
  order by o.created_at desc, o.id desc limit p_limit
$$;

-- What a walk along the newest orders (of a status, of a customer) finds, p_for naming what is to begin with p_q. given_up: the last order
-- that was looked at, where neither enough were found nor the end was reached.
create or replace function holdfast.orders_on_a_walk(p_tenant uuid, p_read jsonb, p_q text, p_after holdfast.order_place,
  p_for text[], out ids uuid[], out ats timestamptz[], out given_up holdfast.order_place)
language plpgsql stable security invoker as $$
declare
  v_wanted constant int := (p_read ->> 'limit')::int + 1;
  v_end constant text := holdfast.prefix_end(p_q);
  v_step int;
  v_place holdfast.order_place := p_after;
  v_stretch record;
begin
  ids := '{}';
  ats := '{}';
  if p_for = '{}' then
    return;
  end if;
  -- Short steps first: what fits nearly all is met at once. A customer's words are looked up for each order.
  foreach v_step in array case when 'customer' = any (p_for) then array[100, 500, 2500, 4000] else array[100, 500, 2500, 12000] end loop
    select count(*) as looked_at, (array_agg(n.id order by n.created_at, n.id))[1] as last_id, min(n.created_at) as last_at,
      array_agg(n.id) filter (where n.fits) as ids, array_agg(n.created_at) filter (where n.fits) as ats
    into v_stretch
    from (
      select n.id, n.created_at, 'number' = any (p_for) and n.number_key >= p_q and n.number_key < v_end
        or 'po' = any (p_for) and coalesce(n.po_key >= p_q and n.po_key < v_end, false)
        -- As a value, since an EXISTS may become a hash of every word of every customer that fits.
        or 'customer' = any (p_for) and (
          select true from public.customer_word w
          where w.tenant_id = p_tenant and (w.customer_id, w.word) >= (n.customer_id, p_q)
            and (w.customer_id, w.word) < (n.customer_id, v_end) limit 1) is not null as fits
      from holdfast.orders_newest(p_tenant, p_read ->> 'status', (p_read ->> 'customerId')::uuid, v_place, v_step) n
      offset 0) n;
    ids := ids || v_stretch.ids;
    ats := ats || v_stretch.ats;
    given_up := null;
    if v_stretch.looked_at < v_step or cardinality(ids) >= v_wanted then
      return;
    end if;
    v_place := row(v_stretch.last_at, v_stretch.last_id);
    given_up := v_place;
  end loop;
end $$;
