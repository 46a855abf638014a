-- The claim: may this request run? Reads app_user and idempotency_key, writes nothing, never waits for a lock. p_call: tenantId,
-- userId, key, method, path, hash (the fingerprint's SHA-256 in hex), and the lock ids lockRequest, of (tenant, key,
-- fingerprint), and lockKey, of (tenant, key).
--
-- An insert into a unique index waits instead of refusing, so two try-locks come first. They only say who may run; the key's row
-- decides, read in a later statement, whose snapshot is younger than the locks. The locks alone would give equal retries a wrong
-- 422, since a finished transaction releases them one by one. Never in an exception block: its rollback frees them.
create or replace function holdfast.claim(p_call jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_key constant text := p_call ->> 'key';
  v_hash constant bytea := decode(p_call ->> 'hash', 'hex');
  v_holds_request boolean;
  v_holds_key boolean := false;
  v_done public.idempotency_key;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'holdfast needs READ COMMITTED, not %', current_setting('transaction_isolation')
      using errcode = 'invalid_transaction_state';
  end if;
  perform set_config('app.tenant_id', v_tenant::text, true);

  perform from public.app_user where tenant_id = v_tenant and id = (p_call ->> 'userId')::uuid;
  if not found then
    return holdfast.decided('unknown_user');
  end if;

  v_holds_request := pg_try_advisory_xact_lock((p_call ->> 'lockRequest')::bigint);
  -- Up to four tries within 15 ms: an equal request that is just ending releases its two locks one after the other.
  for v_try in 1 .. 4 loop
    if v_holds_request then
      v_holds_key := pg_try_advisory_xact_lock((p_call ->> 'lockKey')::bigint);
    end if;
    select * into v_done from public.idempotency_key k where k.tenant_id = v_tenant and k.key = v_key;
    if found then
      if v_done.request_hash <> v_hash then
        return holdfast.decided('reused');
      end if;
      return row('replay', v_done.response_status, v_done.response_body, v_done.response_content_type,
                 v_done.response_etag, v_done.response_location)::holdfast.answer;
    end if;
    if not v_holds_request then
      return holdfast.decided('in_use');
    end if;
    if v_holds_key then
      return holdfast.decided('run');
    end if;
    if v_try < 4 then
      perform pg_sleep(0.005);
    end if;
  end loop;
  -- No equal request runs, but the key is locked: by another request.
  return holdfast.decided('reused');
end $$;
