-- What is known of a SKU at a shop: its inventory item, or that the shop does not carry it.

-- {"tenantId","destinationId","skuId","inventoryItemId","insteadOf","outboxId"}: keeps the shop's inventory item of a SKU. Null: the
-- shop does not carry it, and is asked again in a day, by the event `outboxId`. An item that is stored already, perhaps by a person,
-- stays, unless it is `insteadOf`, which the shop did not know.
create or replace function holdfast.learn_inventory_item(p_call jsonb) returns void
language plpgsql volatile security invoker as $$
declare
  v_item constant text := p_call ->> 'inventoryItemId';
  v_ask_after constant timestamptz := case when v_item is null then clock_timestamp() + interval '1 day' end;
begin
  insert into public.shopify_inventory_item as i (tenant_id, destination_id, sku_id, inventory_item_id, ask_after, outbox_id)
  select d.tenant_id, d.id, (p_call ->> 'skuId')::uuid, v_item, v_ask_after, (p_call ->> 'outboxId')::bigint
  from public.destination d
  where d.tenant_id = (p_call ->> 'tenantId')::uuid and d.id = (p_call ->> 'destinationId')::uuid
  on conflict (tenant_id, destination_id, sku_id) do update set inventory_item_id = excluded.inventory_item_id,
    ask_after = excluded.ask_after, outbox_id = excluded.outbox_id
  where i.inventory_item_id is null or i.inventory_item_id = p_call ->> 'insteadOf';
end $$;

-- {"most"}: makes up to `most` events due again that ended a day ago because their shop did not carry the SKU. Returns how many.
create or replace function holdfast.relay_ask_again(p_call jsonb, out asked int)
language plpgsql volatile security invoker set enable_seqscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_ids bigint[];
begin
  with chosen as (
    select i.tenant_id, i.destination_id, i.sku_id, i.outbox_id from public.shopify_inventory_item i
    where i.outbox_id is not null and i.ask_after <= v_now
    order by i.ask_after limit (p_call ->> 'most')::int for no key update skip locked),
  noted as (
    update public.shopify_inventory_item i set outbox_id = null from chosen c
    where i.tenant_id = c.tenant_id and i.destination_id = c.destination_id and i.sku_id = c.sku_id
    returning c.outbox_id)
  select array_agg(n.outbox_id order by n.outbox_id) into v_ids from noted n;
  update public.outbox o set processed_at = null, attempts = 0, next_attempt_at = v_now
  where o.id = any (v_ids) and o.processed_at is not null;
  get diagnostics asked = row_count;
end $$;
