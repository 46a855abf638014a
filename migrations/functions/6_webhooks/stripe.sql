-- What Stripe tells of an invoice: facts by their own ids (stripe_payment, stripe_return), each once, in whatever order. What they
-- add up to is booked in the payment ledger, from which the invoice's state follows.
-- p_command: do (payment, failure, refund, refund_total, dispute), reference (the fact's own id), paymentIntent (the payment: the
-- intent, else the charge, else the fact's own id), charge, amountMinor (null: all), currency, toldAt, account; optional:
-- invoiceId; of a payment source and ownId, see the table; of the others intent and status.
-- Lock order: the advisory locks of intent (in take_effect) and charge -> customer -> invoice -> inserts.
create or replace function holdfast.apply_stripe(p_tenant uuid, p_command jsonb, p_actor text) returns holdfast.verdict
language plpgsql volatile security invoker as $$
declare
  v_do constant text := p_command ->> 'do';
  v_charge constant text := p_command ->> 'charge';
  v_invoice public.invoice;
  v_reason text;
  v_news text;
  v_keys text[];
  v_for_nobody constant text := current_setting('app.inbox_of_nobody', true);
begin
  if v_charge <> p_command ->> 'paymentIntent' then
    perform pg_advisory_xact_lock(hashtextextended('holdfast/payment_intent/' || v_charge, 0));
  end if;
  v_invoice := holdfast.lock_invoice(p_tenant, holdfast.invoice_of_stripe(p_tenant, p_command));
  if v_invoice.id is null then
    return row(p_tenant, 'there is no such invoice', null)::holdfast.verdict;
  end if;
  v_reason := holdfast.refuse_stripe(v_invoice, p_command);
  if v_reason is not null then
    return row(p_tenant, v_reason, null)::holdfast.verdict;
  end if;
  v_keys := holdfast.news_of_stripe(p_tenant, p_command);
  v_news := case v_do
    when 'payment' then holdfast.note_stripe_payment(v_invoice, p_command)
    when 'failure' then holdfast.note_in_ledger(v_invoice, p_command, p_actor)
    else holdfast.note_stripe_return(v_invoice, p_command) end;
  if v_news is null then
    return row(p_tenant, null, null)::holdfast.verdict;
  elsif v_do = 'dispute' then
    perform holdfast.note_in_ledger(v_invoice, p_command, p_actor);
  end if;
  perform holdfast.book_stripe(p_tenant, v_invoice.id, p_actor);
  perform holdfast.refresh_invoice(p_tenant, v_invoice.id);
  if v_news = 'new' then
    v_reason := holdfast.concern_of_stripe(v_invoice, p_command);
  end if;
  perform holdfast.wake_exceptions(p_tenant, 'stripe', 'payment_intent:' || k.key,
    jsonb_build_object('invoiceId', v_invoice.id), true, p_actor)
  from unnest(v_keys) as k(key);
  -- This may be one that was woken itself, by a loop that goes on.
  perform set_config('app.inbox_of_nobody', coalesce(v_for_nobody, ''), true);
  return row(p_tenant, v_reason, null)::holdfast.verdict;
end $$;

-- The intents and charges that a command makes known as a payment: what was told of them may have waited for it.
create or replace function holdfast.news_of_stripe(p_tenant uuid, p_command jsonb) returns text[]
language plpgsql stable security invoker as $$
declare
  v_payment constant text := p_command ->> 'paymentIntent';
  v_charge constant text := p_command ->> 'charge';
begin
  if p_command ->> 'do' = 'payment' then
    return array(select k.key from (
      select v_payment as key union select v_charge union
      select r.charge from public.stripe_return r where r.tenant_id = p_tenant and r.intent = v_payment) k
      where k.key is not null order by k.key);
  end if;
  return array(select v_charge from public.stripe_payment p
               where p.tenant_id = p_tenant and p.id = v_payment and p.charge is null and v_charge is not null);
end $$;

-- The payment of an intent or a charge, or null.
create or replace function holdfast.payment_of_stripe(p_tenant uuid, p_intent text, p_charge text) returns text
language plpgsql stable security invoker as $$
begin
  return coalesce(
    (select p.id from public.stripe_payment p where p.tenant_id = p_tenant and p.id = p_intent),
    (select p.id from public.stripe_payment p where p.tenant_id = p_tenant and p.id = p_charge),
    (select p.id from public.stripe_payment p where p.tenant_id = p_tenant and p.charge = p_charge order by p.id limit 1));
end $$;

-- The invoice that a command means: of what takes money away that of the payment, whatever its metadata say. An id that is unknown
-- is for a person.
create or replace function holdfast.invoice_of_stripe(p_tenant uuid, p_command jsonb) returns uuid
language plpgsql stable security invoker as $$
declare
  v_named constant uuid := p_command ->> 'invoiceId';
begin
  if p_command ->> 'do' in ('payment', 'failure') or v_named is not null
    and not exists (select from public.invoice i where i.tenant_id = p_tenant and i.id = v_named) then
    return v_named;
  end if;
  return coalesce((select p.invoice_id from public.stripe_payment p
                   where p.tenant_id = p_tenant and p.id = holdfast.payment_of_stripe(p_tenant,
                     p_command ->> 'paymentIntent', coalesce(p_command ->> 'charge', p_command ->> 'paymentIntent'))),
                  v_named);
end $$;

-- Why an event cannot count for this invoice, or null.
create or replace function holdfast.refuse_stripe(p_invoice public.invoice, p_command jsonb) returns text
language plpgsql stable security invoker as $$
declare
  v_account constant text := p_command ->> 'account';
  v_payment constant text := p_command ->> 'paymentIntent';
begin
  if v_account is null and exists (select from public.stripe_account a where a.tenant_id = p_invoice.tenant_id) then
    return 'it names no connected account, and the invoice belongs to one';
  elsif v_account is not null
    and not exists (select from public.stripe_account a where a.tenant_id = p_invoice.tenant_id and a.id = v_account) then
    return 'it is of another Stripe account than the invoice';
  elsif p_command ->> 'do' = 'payment'
    and (holdfast.tenant_of_payment_intent(v_payment) <> p_invoice.tenant_id
         or exists (select from public.stripe_payment p
                    where p.tenant_id = p_invoice.tenant_id and p.id = v_payment and p.invoice_id <> p_invoice.id)) then
    return 'this payment has paid another invoice already';
  end if;
  return null;
end $$;

-- Why a person must look at a fact that counts, told for the first time; or null. p_invoice: as it was before.
create or replace function holdfast.concern_of_stripe(p_invoice public.invoice, p_command jsonb) returns text
language plpgsql stable security invoker as $$
declare
  v_do constant text := p_command ->> 'do';
  v_currency constant text := p_command ->> 'currency';
  v_received bigint;
begin
  if v_do in ('payment', 'refund', 'refund_total') and v_currency <> p_invoice.currency
    or v_do = 'dispute' and p_command ->> 'status' = 'lost' and v_currency <> p_invoice.currency then
    return format('the invoice is in %s: what is in another currency does not count for it', p_invoice.currency);
  elsif v_do = 'dispute' and coalesce(p_command ->> 'status', 'needs_response') in ('needs_response', 'warning_needs_response') then
    return 'the payment is disputed: answer it at Stripe in time';
  elsif v_do <> 'payment' then
    return null;
  elsif p_invoice.status = 'void' then
    return 'the invoice is void: the money is to be returned';
  elsif exists (select from public.wholesale_order o
                where o.tenant_id = p_invoice.tenant_id and o.id = p_invoice.order_id and o.status = 'cancelled') then
    return 'the order is cancelled: see whether the money is to be returned';
  end if;
  select m.standing_minor into v_received from holdfast.money_of_invoice(p_invoice.tenant_id, p_invoice.id) m;
  if v_received > p_invoice.total_minor then
    return format('%s was received of %s: what is beyond is to be returned', v_received, p_invoice.total_minor);
  end if;
  return null;
end $$;

-- A line of what moves no money: once per fact.
create or replace function holdfast.note_in_ledger(p_invoice public.invoice, p_command jsonb, p_actor text) returns text
language plpgsql volatile security invoker as $$
begin
  insert into public.payment_ledger (tenant_id, invoice_id, kind, reference, payment_intent, amount_minor, currency, actor)
  values (p_invoice.tenant_id, p_invoice.id, p_command ->> 'do', p_command ->> 'reference', p_command ->> 'paymentIntent',
    (p_command ->> 'amountMinor')::bigint, p_command ->> 'currency', p_actor)
  on conflict do nothing;
  return case when found then 'new' end;
end $$;

-- Notes a payment: new, changed, or null where all of it was known.
create or replace function holdfast.note_stripe_payment(p_invoice public.invoice, p_command jsonb) returns text
language plpgsql volatile security invoker as $$
declare
  v_id constant text := p_command ->> 'paymentIntent';
  v_charge constant text := coalesce(p_command ->> 'charge', (
    select r.charge from public.stripe_return r
    where r.tenant_id = p_invoice.tenant_id and r.intent = v_id and r.charge is not null order by r.charge limit 1));
  v_source constant int := coalesce((p_command ->> 'source')::int, 1);
  v_amount constant bigint := p_command ->> 'amountMinor';
  v_known public.stripe_payment;
  v_now public.stripe_payment;
begin
  select p.* into v_known from public.stripe_payment p where p.tenant_id = p_invoice.tenant_id and p.id = v_id;
  insert into public.stripe_payment as p (tenant_id, invoice_id, id, own_id, charge, source, amount_minor, currency)
  values (p_invoice.tenant_id, p_invoice.id, v_id, coalesce((p_command ->> 'ownId')::boolean, false), v_charge, v_source, v_amount,
    p_command ->> 'currency')
  on conflict (id) do update
  set charge = coalesce(p.charge, excluded.charge), source = least(p.source, excluded.source),
      amount_minor = case when excluded.source < p.source then excluded.amount_minor
                          when excluded.source = p.source then greatest(p.amount_minor, excluded.amount_minor)
                          else p.amount_minor end,
      currency = case when excluded.source < p.source then excluded.currency else p.currency end
  returning p.* into v_now;
  update public.stripe_return r set invoice_id = p_invoice.id
  where r.tenant_id = p_invoice.tenant_id and r.invoice_id <> p_invoice.id and (r.intent = v_id or r.charge in (v_id, v_charge));
  return case when v_known.id is null then 'new' when v_known is distinct from v_now then 'changed' end;
end $$;

-- Notes a refund, a charge's running total of them or a dispute; what was told later counts, and a refund that failed stays so.
-- New (a dispute's new state too), changed, or null where all of it was known.
create or replace function holdfast.note_stripe_return(p_invoice public.invoice, p_command jsonb) returns text
language plpgsql volatile security invoker as $$
declare
  v_told public.stripe_return := holdfast.read_stripe_return(p_invoice, p_command);
  v_known public.stripe_return;
  v_is_later boolean;
  v_names_charge boolean;
begin
  update public.stripe_payment p set charge = v_told.charge
  where p.tenant_id = v_told.tenant_id and p.id = v_told.intent and p.charge is null and v_told.charge is not null;
  v_names_charge := found;
  select r.* into v_known from public.stripe_return r
  where r.tenant_id = v_told.tenant_id and r.kind = v_told.kind and r.id = v_told.id;
  if not found then
    insert into public.stripe_return select v_told.*;
    return 'new';
  end if;
  v_is_later := case v_told.kind
    when 'refund' then v_told.status = 'failed' and (v_known.status <> 'failed' or v_told.told_at < v_known.told_at)
    when 'refund_total' then (v_told.told_at, coalesce(v_told.amount_minor, 9223372036854775807))
                           > (v_known.told_at, coalesce(v_known.amount_minor, 9223372036854775807))
    else (v_told.told_at, holdfast.rank_of_dispute(v_told.status), v_told.status, v_told.amount_minor)
       > (v_known.told_at, holdfast.rank_of_dispute(v_known.status), v_known.status, v_known.amount_minor) end;
  update public.stripe_return r
  set intent = coalesce(r.intent, v_told.intent), charge = coalesce(r.charge, v_told.charge),
      amount_minor = case when v_is_later then v_told.amount_minor else r.amount_minor end,
      currency = case when v_is_later then v_told.currency else r.currency end,
      status = case when v_is_later then v_told.status else r.status end,
      told_at = case when v_is_later then v_told.told_at else r.told_at end,
      written_at = case when v_is_later then v_told.written_at else r.written_at end
  where r.tenant_id = v_told.tenant_id and r.kind = v_told.kind and r.id = v_told.id;
  return case
    when v_is_later and v_told.kind = 'dispute' and v_told.status <> v_known.status then 'new'
    when v_is_later or v_names_charge or v_known.intent is null and v_told.intent is not null
      or v_known.charge is null and v_told.charge is not null then 'changed' end;
end $$;

-- Commands that were kept before 0012 have no status; their refunds are running totals, named <charge>:<total>.
create or replace function holdfast.read_stripe_return(p_invoice public.invoice, p_command jsonb) returns public.stripe_return
language plpgsql volatile security invoker as $$
declare
  v_status constant text := p_command ->> 'status';
  v_kind constant text := case when p_command ->> 'do' = 'refund' and v_status is null then 'refund_total'
                               else p_command ->> 'do' end;
  v_total_of constant text := case when v_kind = 'refund_total' then split_part(p_command ->> 'reference', ':', 1) end;
  v_return public.stripe_return;
begin
  v_return.tenant_id := p_invoice.tenant_id;
  v_return.invoice_id := p_invoice.id;
  v_return.kind := v_kind;
  v_return.id := coalesce(v_total_of, p_command ->> 'reference');
  v_return.charge := coalesce(p_command ->> 'charge', v_total_of);
  v_return.intent := case when p_command ->> 'paymentIntent' <> coalesce(v_return.charge, '') then p_command ->> 'paymentIntent' end;
  v_return.amount_minor := p_command ->> 'amountMinor';
  v_return.currency := p_command ->> 'currency';
  v_return.status := case
    when v_kind = 'dispute' then coalesce(v_status, 'needs_response')
    when v_kind = 'refund' and v_status in ('failed', 'canceled') then 'failed'
    else 'standing' end;
  v_return.told_at := coalesce((p_command ->> 'toldAt')::bigint, 0);
  v_return.written_at := clock_timestamp();
  return v_return;
end $$;

-- Which of two states of a dispute that were told in one second is the later one.
create or replace function holdfast.rank_of_dispute(p_status text) returns int language sql immutable parallel safe
return coalesce(array_position(array['warning_needs_response', 'warning_under_review', 'warning_closed', 'needs_response',
  'under_review', 'prevented', 'won', 'lost'], p_status), 0);

-- Which returns belong to which payments of an invoice: by intent or charge; one that names no payment of ours belongs to the only
-- payment whose charge is unknown. A payment without returns has a row without a kind.
create or replace function holdfast.returns_of_stripe(p_tenant uuid, p_invoice uuid)
returns table (payment text, kind text, id text)
language sql stable security invoker as $$
  with payment as (
    select p.id, p.charge, p.own_id, p.charge is null and count(*) filter (where p.charge is null) over () = 1 as is_alone
    from public.stripe_payment p where p.tenant_id = p_tenant and p.invoice_id = p_invoice
  ), named as (
    select r.kind, r.id, r.intent, holdfast.payment_of_stripe(p_tenant, r.intent, r.charge) as payment
    from public.stripe_return r where r.tenant_id = p_tenant and r.invoice_id = p_invoice
  )
  select p.id, n.kind, n.id
  from payment p
  left join named n on n.payment = p.id
    or n.payment is null and p.is_alone and (p.own_id or n.intent is null)
$$;

-- What each payment of an invoice has brought, and what of it was returned. Where the refunds of a charge that are known by id, less
-- those that failed, reach its newest running total, they decide; else that total does, less what failed after it (and at least
-- what is known by id). A payment returns at most what it brought.
create or replace function holdfast.money_of_stripe(p_tenant uuid, p_invoice uuid)
returns table (payment text, currency text, paid bigint, refunded bigint, refund text, lost bigint, dispute text)
language sql stable security invoker as $$
  with told as (
    select p.id, p.currency, p.amount_minor as paid, r.kind, r.id as return_id, r.status, r.told_at, r.written_at,
      coalesce(r.amount_minor, p.amount_minor) as amount
    from holdfast.returns_of_stripe(p_tenant, p_invoice) m
    join public.stripe_payment p on p.tenant_id = p_tenant and p.id = m.payment
    left join public.stripe_return r on r.tenant_id = p_tenant and r.kind = m.kind and r.id = m.id
      and coalesce(r.currency, p.currency) = p.currency
  ), summed as (
    select t.id, t.currency, t.paid,
      coalesce(sum(t.amount) filter (where t.kind = 'refund' and t.status <> 'failed'), 0) as refunds,
      coalesce(sum(t.amount) filter (where t.kind = 'refund_total'), 0) as total,
      coalesce(sum(t.amount) filter (where t.kind = 'refund' and t.status = 'failed' and t.told_at >= (
        select max(x.told_at) from told x where x.id = t.id and x.kind = 'refund_total')), 0) as failed_since,
      coalesce(sum(t.amount) filter (where t.kind = 'dispute' and t.status = 'lost'), 0) as lost,
      (array_agg(case t.kind when 'refund_total' then t.return_id || ':' || t.amount else t.return_id end
                 order by t.written_at desc) filter (where t.kind in ('refund', 'refund_total')))[1] as refund,
      (array_agg(t.return_id order by t.written_at desc) filter (where t.kind = 'dispute'))[1] as dispute
    from told t group by t.id, t.currency, t.paid
  ), refunded as (
    select s.*, least(s.paid, greatest(s.refunds, s.total - s.failed_since)) as refunded from summed s
  )
  select r.id, r.currency, r.paid, r.refunded::bigint, r.refund, least(r.paid - r.refunded, r.lost)::bigint, r.dispute
  from refunded r
$$;

-- Books what an invoice's facts come to beyond what its ledger has: one line per payment and kind that differs.
create or replace function holdfast.book_stripe(p_tenant uuid, p_invoice uuid, p_actor text) returns void
language plpgsql volatile security invoker as $$
begin
  insert into public.payment_ledger (tenant_id, invoice_id, kind, reference, payment_intent, amount_minor, currency, actor)
  select p_tenant, p_invoice, coalesce(d.kind, b.kind), coalesce(d.reference, b.payment_intent),
    coalesce(d.payment, b.payment_intent), coalesce(d.amount, 0) - coalesce(b.amount, 0), coalesce(d.currency, b.currency), p_actor
  from (
    select m.payment, m.currency, k.kind, k.reference, k.amount
    from holdfast.money_of_stripe(p_tenant, p_invoice) m
    cross join lateral (values ('payment', m.payment, m.paid), ('refund', m.refund, m.refunded),
      ('chargeback', m.dispute, m.lost)) k(kind, reference, amount)) d
  full join (
    select l.payment_intent, l.currency, l.kind, sum(l.amount_minor) as amount
    from public.payment_ledger l
    where l.tenant_id = p_tenant and l.invoice_id = p_invoice and l.payment_intent is not null
      and l.kind in ('payment', 'refund', 'chargeback')
    group by l.payment_intent, l.currency, l.kind) b
    on b.payment_intent = d.payment and b.currency = d.currency and b.kind = d.kind
  where coalesce(d.amount, 0) <> coalesce(b.amount, 0)
  order by array_position(array['payment', 'refund', 'chargeback'], coalesce(d.kind, b.kind));
end $$;
