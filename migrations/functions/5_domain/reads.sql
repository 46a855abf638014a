-- Page functions are planned with their values (force_custom_plan): which filters are set decides the plan. They walk an index that
-- has the rows in the order wanted and stop: with statistics of a time when there were few rows, PostgreSQL would rather collect all of
-- them (a bitmap scan) and sort.

-- {"tenantId","userId","kind","id"}: one order, SKU, style or invoice. decision: answer; unknown_user; not_found.
create or replace function holdfast.read_one(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_id constant uuid := p_read ->> 'id';
  v_document text;
  v_etag text;
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  case p_read ->> 'kind'
    when 'order' then
      select holdfast.order_document(o.tenant_id, o.id), format('"%s"', o.version) into v_document, v_etag
      from public.wholesale_order o where o.tenant_id = v_tenant and o.id = v_id;
    when 'style' then
      select holdfast.style_document(s.tenant_id, s.id), format('"%s"', s.version) into v_document, v_etag
      from public.style s where s.tenant_id = v_tenant and s.id = v_id;
    when 'customer' then
      select holdfast.customer_document(c.tenant_id, c.id), format('"%s"', c.version) into v_document, v_etag
      from public.customer c where c.tenant_id = v_tenant and c.id = v_id;
    when 'sku' then
      v_document := holdfast.sku_document(v_tenant, v_id);
    when 'invoice' then
      v_document := holdfast.invoice_document(v_tenant, v_id);
  end case;
  if v_document is null then
    return holdfast.decided('not_found');
  end if;
  return holdfast.document_answer(v_document, v_etag);
end $$;

-- Newest first. Filters, each may be null: status, customerId, q (see orders_found); lines: whether with the orders' lines. Renders
-- some orders at a time, and none after the page is full of bytes.
create or replace function holdfast.page_of_wholesale_order(p_tenant uuid, p_read jsonb) returns table (id text, document text)
language plpgsql stable security invoker set plan_cache_mode = force_custom_plan
set enable_bitmapscan = off set enable_sort = off as $$
declare
  v_q constant text := nullif(btrim(lower(p_read ->> 'q')), '');
  v_lines constant boolean := coalesce((p_read ->> 'lines')::boolean, true);
  -- As many as fill a page if each has 500 lines.
  v_at_once constant int := case when v_lines then 32 else 1000 end;
  v_after constant uuid := p_read ->> 'after';
  v_place holdfast.order_place := row(coalesce((
      select o.created_at from public.wholesale_order o where o.tenant_id = p_tenant and o.id = v_after), 'infinity'),
    coalesce(v_after, 'ffffffff-ffff-ffff-ffff-ffffffffffff'));
  v_ids uuid[];
  v_goes_on uuid;
  v_bytes int := 0;
begin
  if v_after is not null and v_place.created_at = 'infinity' then
    return;
  elsif v_q is null then
    v_ids := array(select n.id from holdfast.orders_newest(p_tenant, p_read ->> 'status', (p_read ->> 'customerId')::uuid,
      v_place, (p_read ->> 'limit')::int + 1) n);
  else
    select f.ids, f.goes_on into v_ids, v_goes_on from holdfast.orders_found(p_tenant, p_read, v_q, v_place) f;
  end if;
  for v_from in 1 .. cardinality(v_ids) by v_at_once loop
    for id, document in
      select v_ids[v_from - 1 + d.ord]::text, d.document
      from holdfast.order_documents(p_tenant, v_ids[v_from : v_from + v_at_once - 1], v_lines) d order by d.ord
    loop
      v_bytes := v_bytes + octet_length(document);
      return next;
      if v_bytes > holdfast.page_bytes() then
        return;
      end if;
    end loop;
  end loop;
  if v_goes_on is not null then
    return query select v_goes_on::text, null::text;
  end if;
end $$;

-- By code. Filter: q, a part of the code, or null.
create or replace function holdfast.page_of_sku(p_tenant uuid, p_read jsonb) returns table (id text, document text)
language plpgsql stable security invoker set plan_cache_mode = force_custom_plan
set enable_bitmapscan = off set enable_sort = off as $$
declare
  v_limit constant int := p_read ->> 'limit';
  v_after_code constant text := (
    select s.code from public.sku s where s.tenant_id = p_tenant and s.id = (p_read ->> 'after')::uuid);
  v_q constant text := lower(p_read ->> 'q');
  v_ids constant uuid[] := array(
    select s.id from public.sku s -- a code is unique, so no tie to break
    where s.tenant_id = p_tenant and (v_after_code is null or s.code > v_after_code)
      and (v_q is null or strpos(lower(s.code), v_q) > 0)
    order by s.code
    limit v_limit + 1);
begin
  return query select v_ids[d.ord]::text, d.document from holdfast.sku_documents(p_tenant, v_ids) d order by d.ord;
end $$;

-- By name. Filter: q, a part of the name, or null.
create or replace function holdfast.page_of_customer(p_tenant uuid, p_read jsonb) returns table (id text, document text)
language plpgsql stable security invoker set plan_cache_mode = force_custom_plan
set enable_bitmapscan = off set enable_sort = off as $$
declare
  v_limit constant int := p_read ->> 'limit';
  v_after constant uuid := p_read ->> 'after';
  v_after_name constant text := (
    select c.name from public.customer c where c.tenant_id = p_tenant and c.id = v_after);
  v_q constant text := lower(p_read ->> 'q');
  v_ids constant uuid[] := array(
    select c.id from public.customer c
    where c.tenant_id = p_tenant and (v_after is null or (c.name, c.id) > (v_after_name, v_after))
      and (v_q is null or strpos(lower(c.name), v_q) > 0)
    order by c.name, c.id
    limit v_limit + 1);
begin
  return query select v_ids[d.ord]::text, d.document from holdfast.customer_documents(p_tenant, v_ids) d order by d.ord;
end $$;

-- Newest first. Filters, each may be null: customerId, orderId, status.
create or replace function holdfast.page_of_invoice(p_tenant uuid, p_read jsonb) returns table (id text, document text)
language plpgsql stable security invoker set plan_cache_mode = force_custom_plan
set enable_bitmapscan = off set enable_sort = off as $$
declare
  v_limit constant int := p_read ->> 'limit';
  v_after constant uuid := p_read ->> 'after';
  v_after_at constant timestamptz := (
    select i.created_at from public.invoice i where i.tenant_id = p_tenant and i.id = v_after);
  v_customer constant uuid := p_read ->> 'customerId';
  v_order constant uuid := p_read ->> 'orderId';
  v_status constant text := p_read ->> 'status';
  v_ids constant uuid[] := array(
    select i.id from public.invoice i
    where i.tenant_id = p_tenant and (v_after is null or (i.created_at, i.id) < (v_after_at, v_after))
      and (v_customer is null or i.customer_id = v_customer)
      and (v_order is null or i.order_id = v_order)
      and (v_status is null or i.status = v_status)
    order by i.created_at desc, i.id desc
    limit v_limit + 1);
begin
  return query
  select v_ids[d.ord]::text, d.document from holdfast.invoice_documents(p_tenant, v_ids, false) d order by d.ord;
end $$;
