-- Resolvers: a proof of identity -> a tenant id, and nothing else. Only they look across tenants: row-level security does not
-- bind the tables' owner, as whom they run.
create or replace function holdfast.tenant_of_api_key(p_key_hash bytea) returns uuid
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select tenant_id from public.api_key where key_hash = p_key_hash $$;

create or replace function holdfast.tenant_of_shop(p_domain text) returns uuid
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select tenant_id from public.shopify_shop where domain = lower(p_domain) $$;

create or replace function holdfast.tenant_of_threepl_account(p_account text) returns uuid
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select tenant_id from public.threepl_account where id = p_account $$;

create or replace function holdfast.tenant_of_invoice(p_invoice uuid) returns uuid
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select tenant_id from public.invoice where id = p_invoice $$;

-- p_intent: the intent, or the charge.
create or replace function holdfast.tenant_of_payment_intent(p_intent text) returns uuid
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select coalesce((select tenant_id from public.stripe_payment where id = p_intent),
                  (select tenant_id from public.stripe_payment where charge = p_intent order by id limit 1)) $$;

revoke all on function holdfast.tenant_of_api_key(bytea), holdfast.tenant_of_shop(text),
  holdfast.tenant_of_threepl_account(text), holdfast.tenant_of_invoice(uuid), holdfast.tenant_of_payment_intent(text) from public;
grant execute on function holdfast.tenant_of_api_key(bytea), holdfast.tenant_of_shop(text),
  holdfast.tenant_of_threepl_account(text), holdfast.tenant_of_invoice(uuid), holdfast.tenant_of_payment_intent(text)
  to holdfast_app;

-- {"tenantId","userId"}: sets app.tenant_id, and tells whether the user exists.
create or replace function holdfast.is_user(p_who jsonb) returns boolean
language plpgsql volatile security invoker as $$
begin
  perform set_config('app.tenant_id', p_who ->> 'tenantId', true);
  return exists (select from public.app_user
                 where tenant_id = (p_who ->> 'tenantId')::uuid and id = (p_who ->> 'userId')::uuid);
end $$;

-- {"hash"}, the SHA-256 in hex: the API key with this hash, unless revoked. The caller checks when it expires.
create or replace function holdfast.find_api_key(p_call jsonb)
returns table (tenant_id text, id text, app_user_id text, scopes text, expires_at_secs bigint)
language plpgsql volatile security invoker as $$
declare
  v_hash constant bytea := decode(p_call ->> 'hash', 'hex');
begin
  perform set_config('app.tenant_id', coalesce(holdfast.tenant_of_api_key(v_hash)::text, ''), true);
  return query
  select k.tenant_id::text, k.id::text, k.app_user_id::text, array_to_string(k.scopes, ' '),
         extract(epoch from k.expires_at)::bigint
  from public.api_key k where k.key_hash = v_hash and k.revoked_at is null;
end $$;

-- {"account"}: the signing secret of a 3PL account, read before the signature proves who is calling.
create or replace function holdfast.threepl_secret(p_call jsonb) returns text
language plpgsql volatile security invoker as $$
declare
  v_account constant text := p_call ->> 'account';
begin
  perform set_config('app.tenant_id', coalesce(holdfast.tenant_of_threepl_account(v_account)::text, ''), true);
  return (select a.secret from public.threepl_account a where a.id = v_account);
end $$;

-- {"account"}: as threepl_secret, with the one before it while both count, newest first; sealed, as they are stored.
create or replace function holdfast.threepl_secrets(p_call jsonb) returns table (secret text)
language plpgsql volatile security invoker as $$
declare
  v_account constant text := p_call ->> 'account';
begin
  perform set_config('app.tenant_id', coalesce(holdfast.tenant_of_threepl_account(v_account)::text, ''), true);
  return query
  select s.secret from public.threepl_account a
  cross join lateral (values (1, a.secret), (2, case when a.previous_retires_at > now() then a.previous_secret end)) as s(place, secret)
  where a.id = v_account and s.secret is not null order by s.place;
end $$;

-- {"domain"}: the secrets of a shop that has its own, as threepl_secrets; no row where it has none or is not known.
create or replace function holdfast.shop_secrets(p_call jsonb) returns table (secret text)
language plpgsql volatile security invoker as $$
declare
  v_domain constant text := p_call ->> 'domain';
begin
  perform set_config('app.tenant_id', coalesce(holdfast.tenant_of_shop(v_domain)::text, ''), true);
  return query
  select s.secret from public.shopify_shop a
  cross join lateral (values (1, a.secret), (2, case when a.previous_retires_at > now() then a.previous_secret end)) as s(place, secret)
  where a.domain = lower(v_domain) and a.secret is not null and s.secret is not null order by s.place;
end $$;
