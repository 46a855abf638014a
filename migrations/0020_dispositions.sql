-- Returned goods that a shop has put back on the shelf. Its webhook names no order, so the worker asks the shop.

-- One question to a shop: how were the goods of this reverse fulfilment order disposed of? Gone when it was answered.
create table shopify_question (
  tenant_id uuid not null references tenant,
  shop_domain text not null references shopify_shop,
  -- Shopify's global id of the reverse fulfilment order.
  reverse_order_id text not null,
  -- The delivery that raised it, as an exception needs it, should there be no answer.
  event_id text not null,
  command jsonb not null,
  attempts int not null default 0,
  next_attempt_at timestamptz not null default now(),
  lease_token uuid,
  leased_until timestamptz,
  last_error text check (char_length(last_error) <= 2000),
  created_at timestamptz not null default now(),
  primary key (tenant_id, shop_domain, reverse_order_id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
create index shopify_question_due on shopify_question (next_attempt_at);

alter table shopify_question enable row level security;
create policy tenant_only on shopify_question to holdfast_app
  using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));
create policy drain on shopify_question to holdfast_worker using (true);
grant select, insert, update on shopify_question to holdfast_app;
grant select, update, delete on shopify_question to holdfast_worker;

-- The worker books the answer, as one tenant at a time; of positions, ledgers and what else stock is booked in, the policies are
-- those of reconciliation.
do $$
declare
  v_table text;
begin
  foreach v_table in array array['channel_order', 'channel_order_line', 'channel_refund_line', 'channel_fulfillment_line',
      'channel_edit_line', 'channel_disposition', 'shopify_shop'] loop
    execute format('drop policy if exists tenant_work on public.%I', v_table);
    execute format($policy$create policy tenant_work on public.%I to holdfast_worker
      using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid))$policy$, v_table);
  end loop;
end $$;
grant select on channel_order, channel_order_line, channel_refund_line, channel_fulfillment_line, channel_edit_line,
  channel_disposition to holdfast_worker;
grant insert on channel_order, channel_disposition, channel_hold to holdfast_worker;
grant update on channel_order, channel_order_line to holdfast_worker;
-- It keeps what a shop cannot answer as an exception, with the traces of people in it.
grant insert on exception_trace to holdfast_worker;
-- Not its secret.
grant select (domain, tenant_id, ignores_test_orders) on shopify_shop to holdfast_worker;
