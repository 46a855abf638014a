-- Payments to their end: what Stripe told stands by its own ids, and the ledger is what that adds up to.

-- Which connected account's events a tenant takes; without a row here only those that name no account.
create table stripe_account (
  tenant_id uuid not null references tenant,
  id text primary key check (char_length(id) between 1 and 255),
  created_at timestamptz not null default now()
);
create index stripe_account_of_tenant on stripe_account (tenant_id);

-- Money that Stripe received for an invoice.
create table stripe_payment (
  tenant_id uuid not null,
  invoice_id uuid not null,
  -- The payment intent; where there is none, the charge, the Stripe invoice or the Checkout Session (own_id).
  id text not null unique,
  own_id boolean not null default false,
  charge text,
  -- Who told the amount: 1 the intent, 2 the charge, 3 the session, 4 the Stripe invoice. The lowest is believed.
  source int not null,
  amount_minor bigint not null check (amount_minor >= 0),
  currency text not null,
  primary key (tenant_id, id),
  foreign key (tenant_id, invoice_id) references invoice
);
create index stripe_payment_by_invoice on stripe_payment (tenant_id, invoice_id);
create index stripe_payment_by_charge on stripe_payment (charge);

-- What may take of it away: refunds, a charge's running total of them, disputes. It may be told before its payment.
create table stripe_return (
  tenant_id uuid not null,
  invoice_id uuid not null,
  kind text not null check (kind in ('refund', 'refund_total', 'dispute')),
  -- The refund, the charge, the dispute.
  id text not null,
  intent text,
  charge text,
  -- Null: all that was paid.
  amount_minor bigint check (amount_minor >= 0),
  -- Null: that of the payment.
  currency text,
  -- Of a refund: standing or failed; of a dispute: Stripe's.
  status text not null default 'standing',
  -- The event's time in seconds; of a failed refund that of its failure.
  told_at bigint not null default 0,
  written_at timestamptz not null default clock_timestamp(),
  primary key (tenant_id, kind, id),
  foreign key (tenant_id, invoice_id) references invoice
);
create index stripe_return_by_invoice on stripe_return (tenant_id, invoice_id);
create index stripe_return_by_intent on stripe_return (tenant_id, intent);
create index stripe_return_by_charge on stripe_return (tenant_id, charge);

-- ── The ledger ─────────────────────────────────────────────────────────────────────────────────────────────────

-- Per kind its lines add up to what was received (payment; without an intent: by hand) and what of it was returned (refund,
-- chargeback); a line below zero takes another back.
alter table payment_ledger
  drop constraint payment_ledger_kind_check,
  drop constraint payment_ledger_amount_minor_check,
  drop constraint payment_ledger_one_line_per_fact,
  add constraint payment_ledger_kind_check check (kind in ('payment', 'failure', 'refund', 'dispute', 'chargeback')),
  add constraint payment_ledger_signs check (amount_minor >= 0 or kind in ('payment', 'refund', 'chargeback'));
create unique index payment_ledger_one_line_per_fact on payment_ledger (tenant_id, kind, reference)
  where kind in ('failure', 'dispute');
create unique index payment_ledger_by_hand on payment_ledger (tenant_id, invoice_id, reference)
  where kind = 'payment' and payment_intent is null;
drop index payment_ledger_by_intent;

create index invoice_of_customer on invoice (tenant_id, customer_id, created_at, id);

-- ── What was told before ───────────────────────────────────────────────────────────────────────────────────────

insert into stripe_payment (tenant_id, invoice_id, id, source, amount_minor, currency)
select distinct on (l.payment_intent) l.tenant_id, l.invoice_id, l.payment_intent, 1, l.amount_minor, l.currency
from payment_ledger l where l.kind = 'payment' and l.payment_intent is not null order by l.payment_intent, l.id;
insert into stripe_return (tenant_id, invoice_id, kind, id, intent, charge, amount_minor, currency, told_at)
select distinct on (l.tenant_id, split_part(l.reference, ':', 1)) l.tenant_id, l.invoice_id, 'refund_total',
  split_part(l.reference, ':', 1), l.payment_intent, split_part(l.reference, ':', 1), l.amount_minor, l.currency,
  extract(epoch from l.created_at)
from payment_ledger l where l.kind = 'refund' order by l.tenant_id, split_part(l.reference, ':', 1), l.amount_minor desc;
insert into stripe_return (tenant_id, invoice_id, kind, id, intent, amount_minor, currency, status, told_at)
select l.tenant_id, l.invoice_id, 'dispute', l.reference, l.payment_intent, l.amount_minor, l.currency, 'needs_response',
  extract(epoch from l.created_at)
from payment_ledger l where l.kind = 'dispute';
-- Refunds were written as running totals.
insert into payment_ledger (tenant_id, invoice_id, kind, reference, payment_intent, amount_minor, currency, actor)
select l.tenant_id, l.invoice_id, 'refund', split_part(l.reference, ':', 1), l.payment_intent,
  max(l.amount_minor) - sum(l.amount_minor), l.currency, 'migration/0012'
from payment_ledger l where l.kind = 'refund'
group by l.tenant_id, l.invoice_id, split_part(l.reference, ':', 1), l.payment_intent, l.currency
having sum(l.amount_minor) > max(l.amount_minor);
update invoice i
set paid_minor = m.paid_minor, refunded_minor = least(m.paid_minor, m.refunded_minor)
from (select l.tenant_id, l.invoice_id, coalesce(sum(l.amount_minor) filter (where l.kind = 'payment'), 0) as paid_minor,
        coalesce(sum(l.amount_minor) filter (where l.kind = 'refund'), 0) as refunded_minor
      from payment_ledger l join invoice i on i.tenant_id = l.tenant_id and i.id = l.invoice_id and i.currency = l.currency
      group by l.tenant_id, l.invoice_id) m
where i.tenant_id = m.tenant_id and i.id = m.invoice_id;

-- ── Rights ─────────────────────────────────────────────────────────────────────────────────────────────────────

do $$
declare
  v_table text;
begin
  foreach v_table in array array['stripe_account', 'stripe_payment', 'stripe_return'] loop
    execute format('alter table public.%I enable row level security', v_table);
    execute format($policy$create policy tenant_only on public.%I to holdfast_app
      using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid))$policy$, v_table);
  end loop;
end $$;
grant select on stripe_account to holdfast_app;
grant select, insert, update on stripe_payment, stripe_return to holdfast_app;
