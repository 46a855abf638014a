-- Renders JSON: every recorded answer and every event is built from these. They touch no table.

-- Decodes an argument, for functions of an earlier release; they now send this expression itself, which saves its expansion.
create or replace function holdfast.json(p_utf8 bytea) returns jsonb
language sql stable parallel safe return convert_from(p_utf8, 'UTF8')::jsonb;

-- A JSON string; null gives the JSON literal null.
create or replace function holdfast.quote(p_text text) returns text
language sql stable parallel safe return coalesce(to_json(p_text)::text, 'null');

-- RFC 3339 in UTC with microseconds; null gives null.
create or replace function holdfast.rfc3339(p_at timestamptz) returns text
language sql stable parallel safe return to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
