-- Repairs positions from their ledgers, for an operator who found a row in position_audit. Owner only.
-- Takes the positions' rows in order of SKU, so it may run beside traffic. Returns how many differed.
create or replace function holdfast.rebuild_positions(p_tenant uuid) returns bigint
language plpgsql volatile security invoker as $$
declare
  v_repaired bigint;
begin
  perform from public.sku_position where tenant_id = p_tenant order by sku_id for no key update;
  update public.sku_position p
  set on_hand = a.ledger_on_hand, on_order = a.ledger_on_order, allocated = a.ledger_allocated
  from public.position_audit a
  where a.tenant_id = p_tenant and p.tenant_id = a.tenant_id and p.sku_id = a.sku_id;
  get diagnostics v_repaired = row_count;
  return v_repaired;
end $$;
revoke all on function holdfast.rebuild_positions(uuid) from public;
