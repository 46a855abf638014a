-- The single-statement variant of allocate: claim, work and recorded answer in one message and one commit, so the hot row is held
-- for no round trip. p_call: as of claim(), with orderId, lines ([{"skuId","qty"}, …]) and actor.
create or replace function holdfast.allocate(p_call jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_key constant text := p_call ->> 'key';
  v_hash constant bytea := decode(p_call ->> 'hash', 'hex');
  v_claim holdfast.answer;
begin
  v_claim := holdfast.claim_key(v_tenant, (p_call ->> 'userId')::uuid, v_key, v_hash, (p_call ->> 'lockRequest')::bigint,
    (p_call ->> 'lockKey')::bigint);
  if v_claim.decision <> 'run' then
    return v_claim;
  end if;
  return holdfast.record_key(v_tenant, v_key, p_call ->> 'method', p_call ->> 'path', v_hash,
    holdfast.promise(v_tenant, (p_call ->> 'orderId')::uuid, p_call -> 'lines', p_call ->> 'actor', nullif(p_call -> 'match', 'null'),
      coalesce((p_call ->> 'partial')::boolean, false)));
end $$;

-- The work of allocate for the multi-statement variant: {"tenantId","orderId","lines","actor"}.
create or replace function holdfast.promise_lines(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
begin
  return holdfast.promise((p_call ->> 'tenantId')::uuid, (p_call ->> 'orderId')::uuid, p_call -> 'lines', p_call ->> 'actor',
    nullif(p_call -> 'match', 'null'), coalesce((p_call ->> 'partial')::boolean, false));
end $$;

-- The work of release: {"tenantId","orderId","lines","actor"}.
create or replace function holdfast.release_lines(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
begin
  return holdfast.give_back((p_call ->> 'tenantId')::uuid, (p_call ->> 'orderId')::uuid, p_call -> 'lines', p_call ->> 'actor',
    'release', nullif(p_call -> 'match', 'null'));
end $$;
