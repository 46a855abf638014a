-- What the invariants cost. PostgreSQL parses every CHECK of a table again whenever a statement writes to it; what a domain says it
-- keeps. So what concerns one column moves into domains of the same bounds, and what concerns several becomes one CHECK a table.
-- No row is read again and no table rewritten: each row has passed the CHECK that its new type replaces, so the domains get their
-- constraints as NOT VALID, behind the columns.

create domain holdfast.units as bigint;                -- a number of units, of which there may be none
create domain holdfast.ordered_units as bigint;        -- what a line of an order may want
create domain holdfast.price_minor as bigint;          -- a price in minor units
create domain holdfast.version_number as bigint;
create domain holdfast.currency_code as text;          -- ISO 4217
create domain holdfast.order_status as text;
create domain holdfast.allocation_entry as text;
create domain holdfast.some_units as bigint;           -- signed, and not none
create domain holdfast.purchase_order as text;
create domain holdfast.note as text;
create domain holdfast.key as text collate "C";        -- of an idempotent request
create domain holdfast.sha256 as bytea;
create domain holdfast.recorded_status as int;

drop view position_audit, order_line_audit;

alter table sku_position
  drop constraint sku_position_on_order_check, drop constraint sku_position_allocated_check,
  alter on_order type holdfast.units, alter allocated type holdfast.units;

alter table wholesale_order
  drop constraint wholesale_order_status_check, drop constraint wholesale_order_currency_check,
  drop constraint wholesale_order_customer_po_check, drop constraint wholesale_order_notes_check,
  drop constraint wholesale_order_version_check,
  alter status type holdfast.order_status, alter currency type holdfast.currency_code,
  alter customer_po type holdfast.purchase_order, alter notes type holdfast.note, alter version type holdfast.version_number;

-- That a line holds no more than it wants follows: what was shipped of it is not negative.
alter table order_line
  drop constraint order_line_qty_check, drop constraint order_line_qty_shipped_check,
  drop constraint order_line_qty_invoiced_check, drop constraint order_line_unit_price_minor_check,
  drop constraint order_line_allocated_within_qty,
  alter qty type holdfast.ordered_units, alter qty_allocated type holdfast.units, alter qty_shipped type holdfast.units,
  alter qty_invoiced type holdfast.units, alter unit_price_minor type holdfast.price_minor;

alter table idempotency_key
  drop constraint idempotency_key_key_check, drop constraint idempotency_key_request_hash_check,
  drop constraint idempotency_key_response_status_check,
  alter key type holdfast.key, alter request_hash type holdfast.sha256, alter response_status type holdfast.recorded_status;

-- wholesale_order_id stays generated: it holds whoever inserts to an order of the same tenant, and so order_kind keeps its type.
alter table allocation_ledger
  drop constraint allocation_ledger_order_kind_check, drop constraint allocation_ledger_qty_check,
  drop constraint allocation_ledger_entry_type_check, drop constraint allocation_ledger_sign,
  alter entry_type type holdfast.allocation_entry, alter qty type holdfast.some_units,
  add constraint allocation_ledger_sign check ((entry_type = 'allocate') = (qty > 0)
    and (order_kind = 'wholesale' or order_kind = 'channel')) not valid;

-- A function whose body is kept as a parse tree holds the columns that it names; as text it does not.
do $$
declare
  v_members constant regprocedure := to_regprocedure('holdfast.outbox_members(public.outbox, text)');
begin
  if v_members is not null then
    execute format('create or replace function holdfast.outbox_members(p_row public.outbox, p_destination_name text)
      returns text language sql stable parallel safe as %L', regexp_replace(pg_get_function_sqlbody(v_members), '^RETURN', 'select'));
  end if;
end $$;
alter table outbox
  drop constraint outbox_last_error_check, drop constraint outbox_discard_reason_check,
  drop constraint outbox_owed_or_processed, drop constraint outbox_one_end,
  alter last_error type holdfast.note, alter discard_reason type holdfast.note,
  add constraint outbox_ends check (num_nonnulls(processed_at, dead_lettered_at, discarded_at) <= 1
    and (destination_id is not null or processed_at is not null)) not valid;

alter domain holdfast.units add check (value >= 0) not valid;
alter domain holdfast.ordered_units add check (value between 1 and 1000000) not valid;
alter domain holdfast.some_units add check (value <> 0) not valid;
alter domain holdfast.price_minor add check (value between 0 and 10000000000) not valid;
alter domain holdfast.version_number add check (value > 0) not valid;
alter domain holdfast.currency_code add check (value ~ '^[A-Z]{3}$') not valid;
alter domain holdfast.order_status add check (value in ('open', 'cancelled', 'shipped')) not valid;
alter domain holdfast.allocation_entry add check (value in ('allocate', 'release', 'cancel', 'ship')) not valid;
alter domain holdfast.purchase_order add check (char_length(value) <= 64) not valid;
alter domain holdfast.note add check (char_length(value) <= 2000) not valid;
alter domain holdfast.key add check (char_length(value) between 1 and 255) not valid;
alter domain holdfast.sha256 add check (octet_length(value) = 32) not valid;
alter domain holdfast.recorded_status add check (value between 200 and 499) not valid;

-- Lists every position that differs from its ledgers. Always empty.
create view position_audit with (security_invoker = true) as
select p.tenant_id, p.sku_id,
       p.on_hand, coalesce(s.on_hand, 0) as ledger_on_hand,
       p.on_order, coalesce(s.on_order, 0) as ledger_on_order,
       p.allocated, coalesce(a.allocated, 0) as ledger_allocated
from sku_position p
left join (select tenant_id, sku_id, sum(on_hand_delta) as on_hand, sum(on_order_delta) as on_order
           from stock_ledger group by tenant_id, sku_id) s using (tenant_id, sku_id)
left join (select tenant_id, sku_id, sum(qty) as allocated
           from allocation_ledger group by tenant_id, sku_id) a using (tenant_id, sku_id)
where (p.on_hand, p.on_order, p.allocated)
      is distinct from (coalesce(s.on_hand, 0), coalesce(s.on_order, 0), coalesce(a.allocated, 0));
-- The same for an order's lines. Always empty.
create view order_line_audit with (security_invoker = true) as
select tenant_id, order_id, sku_id, coalesce(l.qty_allocated, 0) as qty_allocated,
       coalesce(a.allocated, 0) as ledger_allocated
from order_line l
full join (select tenant_id, order_id, sku_id, sum(qty) as allocated from allocation_ledger
           where order_kind = 'wholesale' group by tenant_id, order_id, sku_id) a
  using (tenant_id, order_id, sku_id)
where coalesce(l.qty_allocated, 0) <> coalesce(a.allocated, 0);
grant select on position_audit, order_line_audit to holdfast_app;

-- ── Policies ───────────────────────────────────────────────────────────────────────────────────────────────────

-- Without a sub-select, which each statement had to plan, start and run once for each table. Where a query names its tenant, the
-- planner compares the two once; where it does not, this is the key of its index scan. inbox_exception keeps its own: it has a second
-- policy, and an OR of the two is no key.
do $$
declare
  v_policy record;
begin
  for v_policy in
    select p.tablename, p.policyname, p.cmd, case p.tablename when 'tenant' then 'id' else 'tenant_id' end as of_tenant
    from pg_policies p
    where p.schemaname = 'public' and p.policyname in ('tenant_only', 'tenant_read', 'tenant_write')
      and p.tablename <> 'inbox_exception'
  loop
    execute format($policy$alter policy %I on public.%I %s (%I = nullif(current_setting('app.tenant_id', true), '')::uuid)$policy$,
      v_policy.policyname, v_policy.tablename, case v_policy.cmd when 'INSERT' then 'with check' else 'using' end,
      v_policy.of_tenant);
  end loop;
end $$;
