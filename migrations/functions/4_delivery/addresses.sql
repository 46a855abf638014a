-- Addresses to which no mail is sent.

-- {"addresses","kind","reason","at"}: pauses them; returns how many are told of something newer than before. Rows are written in the
-- order of addresses, so that two messages side by side do not wait for each other.
create or replace function holdfast.pause_addresses(p_call jsonb) returns bigint
language plpgsql volatile security invoker as $$
declare
  v_paused bigint;
begin
  insert into public.paused_address as p (address, kind, reason, told_at)
  select a.address, p_call ->> 'kind', p_call ->> 'reason', (p_call ->> 'at')::timestamptz
  from (select distinct left(lower(t.address), 320) as address
        from jsonb_array_elements_text(p_call -> 'addresses') t(address) where t.address <> '') a
  order by a.address
  on conflict (address) do update
    set kind = excluded.kind, reason = excluded.reason, told_at = excluded.told_at, resumed_at = null
    where excluded.told_at > greatest(p.told_at, p.resumed_at);
  get diagnostics v_paused = row_count;
  return v_paused;
end $$;

-- Why nothing may be sent to an address, or null.
create or replace function holdfast.why_paused(p_address text) returns text
language sql stable security invoker as $$
  select format('%s on %s', p.reason, to_char(p.told_at at time zone 'UTC', 'YYYY-MM-DD')) from public.paused_address p
  where p.address = lower(p_address) and p.resumed_at is null limit 1
$$;

-- Whether the operator has allowed the tenant this bus, queue, or sender of mail. (An email destination that names no sender uses
-- the operator's own.)
create or replace function holdfast.is_allowed_target(p_tenant uuid, p_kind text, p_url text) returns boolean
language sql stable as $$
  select p_kind = 'email' and p_url not like 'mailto:%' or exists (
    select from public.aws_target t
    where t.tenant_id = p_tenant and t.kind = p_kind
      and t.address = case p_kind when 'email' then lower(p_url) else p_url end)
$$;
