-- Rendering: every recorded answer and every event is made of these. They touch no table.

-- A call arrives as one hex literal of UTF-8 JSON: nothing to escape, one simple-protocol message.
create or replace function holdfast.json(p_utf8 bytea) returns jsonb
language sql stable parallel safe return convert_from(p_utf8, 'UTF8')::jsonb;

-- A JSON string, or null.
create or replace function holdfast.quote(p_text text) returns text
language sql stable parallel safe return coalesce(to_json(p_text)::text, 'null');

-- RFC 3339 in UTC with microseconds, or null.
create or replace function holdfast.rfc3339(p_at timestamptz) returns text
language sql stable parallel safe return to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- One entry of a refusal's `lines`.
create or replace function holdfast.short_line(p_sku uuid, p_requested bigint, p_available bigint) returns text
language sql immutable parallel safe
return format('{"skuId":"%s","requested":%s,"available":%s}', p_sku, p_requested, p_available);

-- Titles of the refusals that are decided under a lock (those decided before one are in shared/src/error.rs).
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
  when 'unknown_customer' then 'Unknown customer'
  when 'nothing_to_invoice' then 'Nothing to invoice'
  when 'outbox_state' then 'The event is not in a state for this'
  when 'destination_kind' then 'Not for this kind of destination'
  when 'not_found' then 'Not found'
  when 'exception_resolved' then 'The event has been processed'
  when 'shortfall_settled' then 'The shortfall is settled'
  else initcap(replace(p_error, '_', ' '))
end;

create or replace function holdfast.refusal(p_status int, p_error text, p_detail text, p_members text default null)
returns holdfast.outcome language sql immutable parallel safe
return row(p_status, p_error, p_detail, p_members, null, null)::holdfast.outcome;
