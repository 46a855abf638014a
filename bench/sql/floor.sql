with position as (
  update sku_position set allocated = allocated + 1, event_sequence = event_sequence + 1
  where tenant_id = '11111111-1111-4111-8111-111111111111' and sku_id = ('55555555-5555-4555-8555-' || {sku}::text)::uuid
    and on_hand + on_order - allocated >= 1
  returning sku_id, on_hand + on_order - allocated as ats, event_sequence as sequence
), line as (
  update order_line set qty_allocated = qty_allocated + 1
  where tenant_id = '11111111-1111-4111-8111-111111111111' and order_id = ('66666666-6666-4666-8666-' || {order}::text)::uuid
    and sku_id = ('55555555-5555-4555-8555-' || {sku}::text)::uuid and qty_allocated + qty_shipped + 1 <= qty
), counted as (
  update wholesale_order set event_sequence = event_sequence + 1
  where tenant_id = '11111111-1111-4111-8111-111111111111' and id = ('66666666-6666-4666-8666-' || {order}::text)::uuid and status = 'open'
  returning id, event_sequence as sequence
), ledger as (
  insert into allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor)
  select '11111111-1111-4111-8111-111111111111', counted.id, position.sku_id, 1, 'allocate', 'user:22222222-2222-4222-8222-222222222222'
  from position, counted
), events as (
  insert into outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload)
  select d.tenant_id, d.id, e.event_id, e.aggregate_type, e.aggregate_id, e.sequence, e.type,
    format('{"id":"%s","type":"%s","schemaVersion":1,"timestamp":"%s","tenantId":"%s","aggregate":{"type":"%s","id":"%s","sequence":%s},"data":%s}',
      e.event_id, e.type, to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24":"MI":"SS.US"Z"'), d.tenant_id, e.aggregate_type,
      e.aggregate_id, e.sequence, e.data)
  from (
    select gen_random_uuid() as event_id, 'wholesale_order' as aggregate_type, counted.id as aggregate_id, counted.sequence,
      'order.line_allocated' as type, format('{"skuId":"%s","qty":1,"atsAfter":%s}', position.sku_id, position.ats) as data
    from position, counted
    union all
    select gen_random_uuid(), 'sku', position.sku_id, position.sequence, 'sku.ats_changed', format('{"atsAfter":%s}', position.ats)
    from position) e
  join destination d on d.tenant_id = '11111111-1111-4111-8111-111111111111' and '*' = any (d.event_types)
)
insert into idempotency_key (tenant_id, key, request_method, request_path, request_hash, response_status, response_body,
  response_content_type)
select '11111111-1111-4111-8111-111111111111', 'bench-' || {key}::text, 'POST', '/orders/66666666-6666-4666-8666-' || {order}::text || '/allocate',
  '\xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 200,
  convert_to(format('{"ok":%s,"orderId":"66666666-6666-4666-8666-%s","lines":[{"skuId":"%s","qty":1,"atsAfter":%s}]}',
    'true', {order}::text, position.sku_id, position.ats), 'UTF8'), 'application/json'
from position
returning response_body
