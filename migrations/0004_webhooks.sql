-- Webhooks in: what Stripe, Shopify and 3PLs have told, by their own ids, so that however many events tell of one thing,
-- under whatever ids and in whatever order, it counts once. These facts stay when the inbox's rows are reaped.

-- ── Money ──────────────────────────────────────────────────────────────────────────────────────────────────

-- What Stripe told of an invoice. Append-only: one line per fact.
create table payment_ledger (
  tenant_id uuid not null,
  id bigint generated always as identity,
  invoice_id uuid not null,
  kind text not null check (kind in ('payment', 'failure', 'refund', 'dispute')),
  -- The fact's own id at Stripe: the payment intent; the charge that failed; the charge and what was refunded of it so
  -- far; the dispute.
  reference text not null,
  payment_intent text,
  -- Received; asked for in vain; refunded of the charge so far; disputed.
  amount_minor bigint not null check (amount_minor >= 0),
  currency text not null,
  actor text not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (tenant_id, id),
  constraint payment_ledger_one_line_per_fact unique (tenant_id, kind, reference),
  foreign key (tenant_id, invoice_id) references invoice
);
create index payment_ledger_by_invoice on payment_ledger (tenant_id, invoice_id);
-- A refund may name its payment only by the intent, and so not say whose it is.
create index payment_ledger_by_intent on payment_ledger (payment_intent) where kind = 'payment';
create trigger append_only before update or delete or truncate on payment_ledger
  for each statement execute function holdfast.refuse_rewriting();
alter table invoice add column disputed_at timestamptz;

-- ── Channel orders ─────────────────────────────────────────────────────────────────────────────────────────

alter table shopify_shop add column uninstalled_at timestamptz;

-- A D2C order, by the shop's own id. No name, no address: nothing here has to be erased.
create table channel_order (
  tenant_id uuid not null references tenant,
  id uuid not null default gen_random_uuid(),
  shop_domain text not null,
  external_id text not null,
  cancelled_at timestamptz,
  fulfilled_at timestamptz,
  created_at timestamptz not null default now(),
  primary key (tenant_id, id),
  unique (tenant_id, shop_domain, external_id)
);

-- What one line wants, and what stock covers of it. Changes only under its order's row lock.
create table channel_order_line (
  tenant_id uuid not null,
  channel_order_id uuid not null,
  external_id text not null,
  sku_id uuid not null,
  qty bigint not null check (qty > 0),
  -- Held for it; gone from on_hand for it (shipped or written off, less what came back); wanted and not there.
  qty_allocated bigint not null default 0 check (qty_allocated >= 0),
  qty_gone bigint not null default 0 check (qty_gone >= 0),
  qty_short bigint not null default 0 check (qty_short >= 0),
  -- The row that its missing units were counted in.
  shortfall_id uuid,
  primary key (tenant_id, channel_order_id, external_id),
  foreign key (tenant_id, channel_order_id) references channel_order,
  foreign key (tenant_id, sku_id) references sku
);

-- A refund may arrive before its order.
create table channel_refund_line (
  tenant_id uuid not null,
  channel_order_id uuid not null,
  external_id text not null,
  line_external_id text not null,
  qty bigint not null check (qty > 0),
  restock_type text not null check (restock_type in ('cancel', 'return', 'legacy_restock', 'no_restock')),
  primary key (tenant_id, channel_order_id, external_id),
  foreign key (tenant_id, channel_order_id) references channel_order
);

-- ── Advance shipping notices ───────────────────────────────────────────────────────────────────────────────

create table asn (
  tenant_id uuid not null references tenant,
  id uuid not null default gen_random_uuid(),
  account_id text not null,
  external_id text not null,
  announced_at timestamptz,
  -- Nothing more is expected: closed by a receipt, or cancelled.
  closed_at timestamptz,
  primary key (tenant_id, id),
  unique (tenant_id, account_id, external_id)
);

create table asn_line (
  tenant_id uuid not null,
  asn_id uuid not null,
  sku_id uuid not null,
  announced bigint not null default 0 check (announced >= 0),
  received bigint not null default 0 check (received >= 0),
  -- What of it stands in the position's on_order: outstanding, or 0 once closed.
  on_order bigint not null default 0 check (on_order >= 0),
  primary key (tenant_id, asn_id, sku_id),
  foreign key (tenant_id, asn_id) references asn,
  foreign key (tenant_id, sku_id) references sku
);

-- One movement per line of a 3PL's document.
create table threepl_line (
  tenant_id uuid not null,
  account_id text not null,
  kind text not null check (kind in ('asn.created', 'asn.received', 'order.shipped')),
  document_id text not null,
  line_id text not null,
  sku_id uuid not null,
  qty bigint not null check (qty > 0),
  created_at timestamptz not null default now(),
  primary key (tenant_id, account_id, kind, document_id, line_id),
  foreign key (tenant_id, sku_id) references sku
);

-- ── What needs a person ────────────────────────────────────────────────────────────────────────────────────

-- Units that somebody counts on and that are not there. One open row per SKU and cause.
create table shortfall (
  tenant_id uuid not null,
  id uuid not null default gen_random_uuid(),
  sku_id uuid not null,
  qty bigint not null check (qty > 0),
  cause text not null,
  -- Units that left (or will not come) while they were promised: the position could not lose them without breaking
  -- allocated <= on_hand + on_order, so it still carries them. Booked when the row is settled.
  owed_on_hand bigint not null default 0 check (owed_on_hand >= 0),
  owed_on_order bigint not null default 0 check (owed_on_order >= 0),
  opened_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  settled_at timestamptz,
  settled_by text,
  note text check (char_length(note) <= 2000),
  primary key (tenant_id, id),
  foreign key (tenant_id, sku_id) references sku_position
);
create unique index shortfall_one_open on shortfall (tenant_id, sku_id, cause) where settled_at is null;
create index shortfall_newest on shortfall (tenant_id, opened_at desc, id desc);

-- A signed event that could not be processed, or not wholly; kept to be run again.
create table inbox_exception (
  id uuid primary key default gen_random_uuid(),
  -- Null where it names nobody that we know.
  tenant_id uuid references tenant,
  provider text not null,
  event_id text not null,
  topic text not null,
  reason text not null,
  -- What it waits for, if that may come by itself: `asn:…`, `payment_intent:…`.
  waits_for text,
  -- What was understood of it; null where it could not be read.
  command jsonb,
  -- The raw bytes; what the work needs of them, and nothing personal, once redacted.
  body bytea not null,
  attempts int not null default 1,
  received_at timestamptz not null default now(),
  last_tried_at timestamptz not null default now(),
  resolved_at timestamptz,
  resolved_by text,
  redacted_at timestamptz,
  unique (provider, event_id)
);
create index inbox_exception_newest on inbox_exception (tenant_id, received_at desc, id desc);
create index inbox_exception_waiting on inbox_exception (provider, waits_for)
  where waits_for is not null and resolved_at is null;

-- ── Rights ─────────────────────────────────────────────────────────────────────────────────────────────────

do $$
declare
  v_table text;
begin
  foreach v_table in array array['payment_ledger', 'channel_order', 'channel_order_line', 'channel_refund_line', 'asn',
      'asn_line', 'threepl_line', 'shortfall', 'inbox_exception'] loop
    execute format('alter table public.%I enable row level security', v_table);
    execute format($policy$create policy tenant_only on public.%I to holdfast_app
      using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid))$policy$, v_table);
  end loop;
end $$;
-- An exception that names nobody belongs to no tenant; the inbox, and only it, says that it means those.
create policy nobodys on inbox_exception to holdfast_app
  using (tenant_id is null and (select current_setting('app.inbox_of_nobody', true)) = 'on');

grant select, insert on webhook_inbox to holdfast_app;
grant insert on stock_ledger to holdfast_app;
grant update (on_hand, on_order) on sku_position to holdfast_app;
grant update (qty_shipped) on order_line to holdfast_app;
grant update (status, paid_at, disputed_at, event_sequence) on invoice to holdfast_app;
grant update (event_sequence) on tenant to holdfast_app;
grant select, update (uninstalled_at) on shopify_shop to holdfast_app;
grant select on threepl_account to holdfast_app;
grant select, insert on payment_ledger, channel_refund_line, threepl_line to holdfast_app;
grant select, insert, update on channel_order, channel_order_line, asn, asn_line, shortfall, inbox_exception
  to holdfast_app;

-- What an effect came to. tenant_id: whose it is, where that is known; reason: why a person must look, or null;
-- waits_for: what would mend it by itself.
create type holdfast.verdict as (tenant_id uuid, reason text, waits_for text);
