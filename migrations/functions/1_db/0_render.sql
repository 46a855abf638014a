-- Rendering: every recorded answer and every event is made of these. They touch no table.

-- An argument arrives as one hex literal of UTF-8 JSON: nothing to escape, one simple-protocol message.
create or replace function holdfast.json(p_utf8 bytea) returns jsonb
language sql stable parallel safe return convert_from(p_utf8, 'UTF8')::jsonb;

-- A JSON string, or null.
create or replace function holdfast.quote(p_text text) returns text
language sql stable parallel safe return coalesce(to_json(p_text)::text, 'null');

-- RFC 3339 in UTC with microseconds, or null.
create or replace function holdfast.rfc3339(p_at timestamptz) returns text
language sql stable parallel safe return to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
