-- What a shop may name a person by, in the bodies that are kept of it, and the erasure of a person. Table exception_trace.

create or replace function holdfast.trace(p_provider text, p_kind text, p_value text) returns bigint language sql immutable parallel safe
return hashtextextended(concat_ws('/', p_provider, p_kind, p_value), 0);

-- Each whole number (77 is neither in 1077 nor in 77.50), e-mail address and phone number in a body, and the customer and order of the
-- command that was made of it. `all`: it is too large, or holds too many; such a body is read itself.
create or replace function holdfast.traces_of(p_provider text, p_body bytea, p_command jsonb) returns setof bigint
language sql immutable parallel safe as $$
  with escaped as materialized (
    -- Bytes beyond ASCII as \ooo, a backslash as two; JSON's escapes part words.
    select regexp_replace(lower(encode(p_body, 'escape')), '\\\\(u[0-9a-f]{4}|.)', ' ', 'g') as text
    where octet_length(p_body) <= 200000
  ), found as materialized (
    select 'id' as kind, m[1] as value from escaped e
    cross join lateral regexp_matches(regexp_replace(e.text, '\\[0-7]{3}', 'x', 'g'),
      '(?<![0-9a-z.])([0-9]{1,20})(?![0-9a-z.])', 'g') m
    union
    select 'mail', btrim(m[1], '.') from escaped e
    cross join lateral regexp_matches(e.text,
      '((?:[^\s"''<>(),;:/=?&@\\]|\\[0-7]{3})+@(?:[^\s"''<>(),;:/=?&@\\]|\\[0-7]{3})+)', 'g') m
    union
    select 'phone', regexp_replace(m[1], '[^0-9]', '', 'g') from escaped e
    cross join lateral regexp_matches(e.text, '(\+[0-9][0-9 ()./-]{4,}|[0-9]+[ ()/-][0-9 ()./-]{4,})', 'g') m
  ), few as (
    select count(*) <= 5000 and exists (select from escaped) as yes from found
  )
  select holdfast.trace(p_provider, f.kind, f.value) from found f cross join few where few.yes
  union
  select holdfast.trace(p_provider, 'all', '') from few where not few.yes
  union
  select holdfast.trace(p_provider, c.kind, c.value)
  from (values ('customer', p_command ->> 'customerId'), ('order', p_command ->> 'orderId')) c(kind, value) where c.value is not null
$$;

-- Erases personal data of one customer (found by id, by orders, by e-mail address and phone number), or of all (shop/redact), from a
-- shop's exceptions, by the traces that were kept of each (holdfast.traces_of). What the effect needs stays, in the shape of the body,
-- so that it can still be retried.
create or replace function holdfast.redact_exceptions(p_provider text, p_command jsonb) returns void
language plpgsql volatile security invoker as $$
declare
  v_customer constant text := p_command ->> 'customerId';
  v_id constant text := case when v_customer ~ '^[0-9]+$' then v_customer end;
  v_named constant text[] := array(
    select lower(encode(convert_to(btrim(t.trace), 'UTF8'), 'escape'))
    from jsonb_array_elements_text(p_command -> 'traces') as t(trace));
  v_traces constant bigint[] := array(
    select holdfast.trace(p_provider, t.kind, t.value)
    from (values ('id', v_id), ('customer', v_customer)) t(kind, value) where t.value is not null
    union all
    select holdfast.trace(p_provider, 'order', o.id) from jsonb_array_elements_text(p_command -> 'orderIds') o(id)
    union all
    select case when position('@' in n.name) > 0 then holdfast.trace(p_provider, 'mail', n.name)
                else holdfast.trace(p_provider, 'phone', regexp_replace(n.name, '[^0-9]', '', 'g')) end
    from unnest(v_named) n(name));
  v_about uuid[];
  v_one uuid;
begin
  perform set_config('app.inbox_of_nobody', 'on', true);
  if p_command ->> 'do' = 'shop/redact' then
    v_about := array(select e.id from public.inbox_exception e where e.provider = p_provider and e.redacted_at is null);
  else
    v_about := array(
      select t.exception_id from public.exception_trace t where t.trace = any (v_traces)
      union
      select e.id from public.exception_trace t join public.inbox_exception e on e.id = t.exception_id
      where t.trace = holdfast.trace(p_provider, 'all', '')
        and (encode(e.body, 'escape') ~ ('(^|[^0-9a-zA-Z.])' || v_id || '($|[^0-9a-zA-Z.])')
             or exists (select from unnest(v_named) n(name) where position(n.name in lower(encode(e.body, 'escape'))) > 0)));
  end if;
  -- One by one, so that each is found by its key: an array of them may be planned as a walk along all of the tenant's.
  foreach v_one in array v_about loop
    update public.inbox_exception e
    set body = case when e.command ? 'order' then convert_to(((e.command -> 'order') - 'customer')::text, 'UTF8')
                    when e.command is not null then '{}' else '' end,
        command = (e.command - 'customerId') #- '{order,customer}', redacted_at = now()
    where e.id = v_one and e.redacted_at is null;
  end loop;
  perform set_config('app.inbox_of_nobody', '', true);
end $$;
