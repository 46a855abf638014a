-- What happens to an order after it was promised: customers that people save, the history of an order, invoices that are
-- voided and paid in parts.

-- Scopes that an API key may hold; events:read and platform:admin are for what comes.
alter table api_key drop constraint api_key_scopes_check;
alter table api_key add constraint api_key_scopes_check check (scopes <@ array['orders:write', 'orders:read', 'outbox:admin',
  'credit:write', 'events:read', 'platform:admin']);

-- ── Customers ──────────────────────────────────────────────────────────────────────────────────────────────────

alter table customer
  add column on_hold boolean not null default false,
  add column version bigint not null default 1,
  add column event_sequence bigint not null default 0,
  add column updated_by uuid,
  add column updated_at timestamptz not null default now();
grant update (name, credit_limit_minor, on_hold, version, event_sequence, updated_by, updated_at) on customer to holdfast_app;

-- ── History ────────────────────────────────────────────────────────────────────────────────────────────────────

-- What people and senders did to an order, but for the moves of stock, which allocation_ledger has. Kept for good: keys and
-- delivered events are reaped.
create table order_change (
  tenant_id uuid not null,
  order_id uuid not null,
  id bigint generated always as identity,
  -- created, saved, cancelled, closed, shipped.
  action text not null check (action in ('created', 'saved', 'cancelled', 'closed', 'shipped')),
  actor text not null,
  -- Of created and saved: the fields before and after; of shipped: the lines.
  details jsonb not null default '{}',
  at timestamptz not null default clock_timestamp(),
  primary key (tenant_id, order_id, id),
  foreign key (tenant_id, order_id) references wholesale_order
);
create trigger append_only before update or delete or truncate on order_change
  for each statement execute function holdfast.refuse_rewriting();
alter table order_change enable row level security;
create policy tenant_only on order_change to holdfast_app
  using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));
grant select, insert on order_change to holdfast_app;

-- ── Invoices ───────────────────────────────────────────────────────────────────────────────────────────────────

alter table invoice drop constraint invoice_status_check;
alter table invoice
  add constraint invoice_status_check check (status in ('awaiting_payment', 'paid', 'refunded', 'void')),
  -- What the payment ledger adds up to: received, and of that returned.
  add column paid_minor bigint not null default 0,
  add column refunded_minor bigint not null default 0,
  add column created_by text,
  add column voided_at timestamptz,
  add column voided_by text,
  add column void_reason text;
grant update (paid_minor, refunded_minor, voided_at, voided_by, void_reason) on invoice to holdfast_app;
-- The unpaid part counts as exposure.
drop index invoice_awaiting_payment;
create index invoice_awaiting_payment on invoice (tenant_id, customer_id) include (total_minor, paid_minor, refunded_minor)
  where status = 'awaiting_payment';
create index invoice_newest on invoice (tenant_id, created_at, id);
