-- A proof of identity -> a tenant id, and nothing else. The only functions that look across tenants; they run as
-- the tables' owner, whom row-level security does not bind.
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

revoke all on function holdfast.tenant_of_api_key(bytea), holdfast.tenant_of_shop(text),
  holdfast.tenant_of_threepl_account(text), holdfast.tenant_of_invoice(uuid) from public;
grant execute on function holdfast.tenant_of_api_key(bytea), holdfast.tenant_of_shop(text),
  holdfast.tenant_of_threepl_account(text), holdfast.tenant_of_invoice(uuid) to holdfast_app;

-- Whether the caller's user exists, for refusals that never reach the claim: {"tenantId","userId"}.
create or replace function holdfast.is_user(p_who jsonb) returns boolean
language plpgsql volatile security invoker as $$
begin
  perform set_config('app.tenant_id', p_who ->> 'tenantId', true);
  return exists (select from public.app_user
                 where tenant_id = (p_who ->> 'tenantId')::uuid and id = (p_who ->> 'userId')::uuid);
end $$;
