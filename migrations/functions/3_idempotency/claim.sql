-- The claim: may this request run? Reads app_user and idempotency_key, writes nothing, never waits for a lock. p_hash: the
-- fingerprint's SHA-256; the lock ids are of (tenant, key, fingerprint) and of (tenant, key).
--
-- An insert into a unique index waits instead of refusing, so two try-locks come first. They only say who may run; the key's row
-- decides, read in a later statement, whose snapshot is younger than the locks. Never in an exception block: its rollback frees
-- the locks.
create or replace function holdfast.claim_key(p_tenant uuid, p_user uuid, p_key text, p_hash bytea, p_lock_request bigint,
  p_lock_key bigint) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant text;
  v_holds_request boolean;
  v_holds_key boolean := false;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'holdfast needs READ COMMITTED, not %', current_setting('transaction_isolation')
      using errcode = 'invalid_transaction_state';
  end if;
  v_tenant := set_config('app.tenant_id', p_tenant::text, true);
  perform from public.app_user u where u.tenant_id = p_tenant and u.id = p_user;
  if not found then
    return holdfast.decided('unknown_user');
  end if;
  v_holds_request := pg_try_advisory_xact_lock(p_lock_request);
  if v_holds_request then
    v_holds_key := pg_try_advisory_xact_lock(p_lock_key);
  end if;
  perform from public.idempotency_key k where k.tenant_id = p_tenant and k.key = p_key;
  if not found and v_holds_key then
    return holdfast.decided('run');
  end if;
  return holdfast.look_up_key(p_tenant, p_key, p_hash, v_holds_request, p_lock_key);
end $$;

-- What the key's row decides, or the locks where there is none. Up to four looks within 15 ms: an equal request that is just
-- ending releases its two locks one after the other, and by the locks alone it would be told a wrong 422.
create or replace function holdfast.look_up_key(p_tenant uuid, p_key text, p_hash bytea, p_holds_request boolean,
  p_lock_key bigint) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_holds_key boolean := false;
  v_done public.idempotency_key;
begin
  for v_look in 1 .. 4 loop
    if p_holds_request and v_look > 1 then
      v_holds_key := pg_try_advisory_xact_lock(p_lock_key);
    end if;
    select * into v_done from public.idempotency_key k where k.tenant_id = p_tenant and k.key = p_key;
    if found then
      if v_done.request_hash <> p_hash then
        return holdfast.decided('reused');
      end if;
      return row('replay', v_done.response_status, v_done.response_body, v_done.response_content_type,
                 v_done.response_etag, v_done.response_location)::holdfast.answer;
    end if;
    if not p_holds_request then
      return holdfast.decided('in_use');
    end if;
    if v_holds_key then
      return holdfast.decided('run');
    end if;
    if v_look < 4 then
      perform pg_sleep(0.005);
    end if;
  end loop;
  -- No equal request runs, but the key is locked: by another request.
  return holdfast.decided('reused');
end $$;

-- claim_key() for the multi-statement variant. p_call: tenantId, userId, key, method, path, hash (in hex), lockRequest, lockKey.
create or replace function holdfast.claim(p_call jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
begin
  return holdfast.claim_key((p_call ->> 'tenantId')::uuid, (p_call ->> 'userId')::uuid, p_call ->> 'key',
    decode(p_call ->> 'hash', 'hex'), (p_call ->> 'lockRequest')::bigint, (p_call ->> 'lockKey')::bigint);
end $$;
