// Orders: the list.
import { badge, day, filters, h, heading, link, money, muted, nothing, number, pages, query, rowLink, search, select, sum, table, time } from './ui.js';


/** Orders as a table; also of one customer. */
export function orderTable(orders, { customer = true } = {}) {
	return table('Orders', [
		['Order', (o) => rowLink(`#/order/${o.id}`, o.number)],
		customer && ['Customer', (o) => o.customerName, 'grow'],
		['PO', (o) => o.customerPo],
		['Status', (o) => badge(o.status)],
		['Units', (o) => o.lines && number(sum(o.lines, (l) => l.qty)), 'num'],
		['Committed', (o) => {
			if (!o.lines) return null;
			const committed = sum(o.lines, (l) => l.qtyAllocated + l.qtyShipped);
			return committed ? number(committed) : muted('0');
		}, 'num'],
		['Value', (o) => o.lines && money(sum(o.lines, (l) => l.qty * l.unitPriceMinor), o.currency), 'num'],
		['Ship by', (o) => o.shipWindowEnd && day(o.shipWindowEnd)],
		['Saved', (o) => [time(o.updatedAt), muted(` ${o.updatedByName ?? ''}`)]],
	].filter(Boolean), orders);
}

export async function list(ctx) {
	ctx.title('Orders');
	const q = search('Number, PO or customer');
	const status = select([['', 'Any status'], ['open', 'Open'], ['shipped', 'Shipped'], ['cancelled', 'Cancelled']], '', { 'aria-label': 'Status' });
	const place = h('div');
	const create = ctx.may('orders:write') ? link('#/new-order', 'New order', 'button main') : null;
	const load = () => {
		const asked = { q: ctx.query.get('q'), status: ctx.query.get('status') };
		const empty = asked.q || asked.status
			? nothing('No order fits', 'Numbers, POs and names are found by how they begin. Try less, or another status.')
			: nothing('No orders yet', 'What your customers order stands here.', ctx.may('orders:write') ? link('#/new-order', 'Create the first order', 'button main') : null);
		return pages(place, ctx, `/orders${query(asked)}`, (orders) => orderTable(orders), empty);
	};
	const form = filters(ctx, { q, status }, load);
	ctx.at.append(heading('Orders', create), form(q, status), place);
	await load();
}
