-- holdfast.outcome: an operation's decision, before it is recorded. holdfast.answer: the result of reads, claim() and record().

-- One entry of a refusal's `lines`.
create or replace function holdfast.short_line(p_sku uuid, p_requested bigint, p_available bigint) returns text
language sql immutable parallel safe
return format('{"skuId":"%s","requested":%s,"available":%s}', p_sku, p_requested, p_available);

-- Titles of the refusals that are decided under a lock; the others are in shared/src/http/problem.rs.
create or replace function holdfast.problem_title(p_error text) returns text
language sql immutable parallel safe
return case p_error
  when 'order_not_found' then 'No such order'
  when 'order_not_open' then 'The order is not open'
  when 'unknown_sku' then 'Unknown SKU'
  when 'sku_not_on_order' then 'The SKU is not on the order'
  when 'exceeds_ordered' then 'More than the order still wants'
  when 'credit_limit_exceeded' then 'The customer''s credit limit would be exceeded'
  when 'insufficient_ats' then 'Not enough available to sell'
  when 'exceeds_allocated' then 'More than the order holds'
  when 'version_conflict' then 'Somebody saved first'
  when 'below_allocated' then 'Below what is allocated or shipped'
  when 'customer_on_hold' then 'The customer is on hold'
  when 'order_part_shipped' then 'Part of the order was shipped'
  when 'nothing_shipped' then 'Nothing of the order was shipped'
  when 'invoice_state' then 'The state of the invoice does not allow this'
  when 'exceeds_due' then 'More than is due'
  when 'payment_exists' then 'The invoice has a payment with this reference'
  when 'unknown_customer' then 'Unknown customer'
  when 'nothing_to_invoice' then 'Nothing to invoice'
  when 'outbox_state' then 'The state of the event does not allow this'
  when 'destination_kind' then 'This kind of destination does not allow this'
  when 'not_found' then 'Not found'
  when 'reconcile_state' then 'The state of the reconciliation does not allow this'
  when 'exception_resolved' then 'The event has been processed'
  when 'shortfall_settled' then 'The shortfall is settled'
  else initcap(replace(p_error, '_', ' '))
end;

create or replace function holdfast.refusal(p_status int, p_error text, p_detail text, p_members text default null)
returns holdfast.outcome language sql immutable parallel safe
return row(p_status, p_error, p_detail, p_members, null, null)::holdfast.outcome;

-- A body that does not fit what is stored. Status 400 is not recorded: the key stays unused.
create or replace function holdfast.does_not_fit(p_path text, p_message text) returns holdfast.outcome
language sql immutable parallel safe
return holdfast.refusal(400, 'invalid_body', p_message,
  format('"errors":[{"path":%s,"message":%s}]', holdfast.quote(p_path), holdfast.quote(p_message)));

create or replace function holdfast.success(p_status int, p_document text, p_etag text default null,
  p_location text default null) returns holdfast.outcome language sql immutable parallel safe
return row(p_status, null, null, p_document, p_etag, p_location)::holdfast.outcome;

-- An answer without a document: unknown_user, not_found, unknown_after, run, reused, in_use.
create or replace function holdfast.decided(p_decision text) returns holdfast.answer language sql immutable parallel safe
return row(p_decision, null, null, null, null, null)::holdfast.answer;

create or replace function holdfast.document_answer(p_document text, p_etag text default null) returns holdfast.answer
language sql stable parallel safe
return row('answer', 200, convert_to(p_document, 'UTF8'), 'application/json', p_etag, null)::holdfast.answer;
