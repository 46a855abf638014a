-- What was refunded of a line, found without reading all that was refunded of its order.
create index channel_refund_line_by_line on channel_refund_line (tenant_id, channel_order_id, line_external_id);
