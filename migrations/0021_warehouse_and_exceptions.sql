-- What a warehouse tells besides announced, received and shipped goods; exceptions that people end in bulk; shops and warehouses
-- whose secrets are changed while they send.

-- ── Warehouses ─────────────────────────────────────────────────────────────────────────────────────────────────

-- A receipt is corrected, and a count adjusted, by a line below zero.
alter table threepl_line
  drop constraint if exists threepl_line_kind_check,
  drop constraint if exists threepl_line_qty_check,
  add constraint threepl_line_kind_check check (
    kind in ('asn.created', 'asn.received', 'order.shipped', 'order.returned', 'inventory.adjusted')),
  add constraint threepl_line_qty_check check (qty > 0 or (qty < 0 and kind in ('asn.received', 'inventory.adjusted'))),
  -- Why the warehouse adjusted its count.
  add column reason text;
-- A correction may arrive before the receipt that it corrects.
alter table asn_line drop constraint if exists asn_line_received_check;

alter table order_change
  drop constraint if exists order_change_action_check,
  add constraint order_change_action_check check (
    action in ('created', 'saved', 'cancelled', 'closed', 'shipped', 'returned'));

-- A sender's secret, and the one before it while both are taken.
alter table threepl_account
  add column previous_secret text,
  add column previous_retires_at timestamptz;
alter table shopify_shop
  -- Null: the shop's deliveries are signed with the app's secret.
  add column secret text,
  add column previous_secret text,
  add column previous_retires_at timestamptz,
  -- Destinations that were paused because the shop removed the app; its next delivery sets them active again.
  add column paused_destinations uuid[] not null default '{}';
grant update (paused_destinations) on shopify_shop to holdfast_app;

-- ── Exceptions ─────────────────────────────────────────────────────────────────────────────────────────────────

alter table inbox_exception
  -- Set where a person ended it without processing it.
  add column dismiss_reason text check (char_length(dismiss_reason) <= 2000),
  -- When body and command were deleted, some time after its end.
  add column body_deleted_at timestamptz;
create index inbox_exception_open on inbox_exception (tenant_id, received_at desc, id desc) where resolved_at is null;
create index inbox_exception_ended on inbox_exception (resolved_at)
  where resolved_at is not null and body_deleted_at is null;
-- What binding the shop will run again.
update inbox_exception set waits_for = 'account'
where tenant_id is null and resolved_at is null and waits_for is null and provider like 'shopify:%' and command is not null;

create policy drain on inbox_exception to holdfast_worker using (true);
grant select (id, resolved_at, body_deleted_at), update (body, command, body_deleted_at) on inbox_exception to holdfast_worker;
