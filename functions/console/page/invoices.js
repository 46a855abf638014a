// Invoices: the list, and one with its payments; payments by hand, and taking an invoice back.
import { ask, badge, button, dialog, endings, facts, field, filters, h, heading, link, money, muted, nothing, pages, panel, query, readAmount, rowLink, say, select, table, time, words } from './ui.js';

const due = (invoice) => (invoice.status === 'awaiting_payment' ? invoice.totalMinor - (invoice.paidMinor - invoice.refundedMinor) : 0);

/** names: customer id → name, or null where the customer is known from around it; act(invoice): a button. */
export function invoiceTable(invoices, names, act) {
	return table('Invoices', [
		['Invoice', (i) => rowLink(`#/invoice/${i.id}`, i.id.slice(0, 8))],
		names && ['Customer', (i) => names.get(i.customerId) ?? '', 'grow'],
		['Status', (i) => [badge(i.status), i.disputed ? badge('disputed', 'bad') : null]],
		['Total', (i) => money(i.totalMinor, i.currency), 'num'],
		['Received', (i) => money(i.paidMinor - i.refundedMinor, i.currency), 'num'],
		['Due', (i) => (due(i) ? money(due(i), i.currency) : null), 'num'],
		['Made', (i) => time(i.createdAt)],
		act && ['', (i) => act(i) ?? ' ', 'act'],
	].filter(Boolean), invoices);
}

/** Books a payment that did not come through Stripe; what it says when that is done, or undefined. */
export async function pay(ctx, invoice) {
	const amount = h('input', { inputmode: 'decimal', required: true, autofocus: true });
	const reference = h('input', { required: true, maxlength: 200 });
	const body = await dialog('Book a payment', (close) => h('form', { onsubmit: (event) => {
		event.preventDefault();
		const minor = readAmount(amount.value, invoice.currency);
		amount.mistake(minor === null || minor === 0 ? 'No amount' : '');
		if (minor && reference.value.trim()) close({ amountMinor: minor, reference: reference.value.trim() });
	} }, h('p', due(invoice) ? `${money(due(invoice), invoice.currency)} are due. ` : '', 'A payment that did not come through Stripe. A negative amount takes back one that bounced.'),
	field(`Amount, ${invoice.currency}`, amount), field('Reference', reference, { hint: 'Of the bank, or the number of a cheque; once per invoice.' }),
	endings(close, h('button.main', 'Book it'))));
	if (!body) return undefined;
	const text = money(body.amountMinor, invoice.currency);
	await ctx.send('POST', `/invoices/${invoice.id}/payments`, body, `Book ${text} (${body.reference})`);
	return `Booked ${text}.`;
}

const known = new Map();
async function customerNames(ctx, invoices) {
	const missing = [...new Set(invoices.map((i) => i.customerId))].filter((id) => !known.has(id));
	// A few at a time: each is a request of its own.
	for (let n = 0; n < missing.length; n += 4) {
		await Promise.all(missing.slice(n, n + 4).map(async (id) => known.set(id, (await ctx.get(`/customers/${id}`)).name)));
	}
	return known;
}

export async function list(ctx) {
	ctx.title('Invoices');
	const status = select([['', 'Any status'], ['awaiting_payment', 'Awaiting payment'], ['paid', 'Paid'], ['refunded', 'Refunded'], ['void', 'Void']], '', { 'aria-label': 'Status' });
	const place = h('div');
	const load = async () => {
		const fill = (invoices) => { customerNames(ctx, invoices).then(() => { shown?.replaceWith(invoiceTable(all, known)); shown = place.querySelector('.table'); }, () => {}); };
		const all = [];
		let shown = null;
		await pages(place, ctx, `/invoices${query({ status: ctx.query.get('status') })}`, (invoices) => {
			all.push(...invoices);
			shown = invoiceTable(invoices, known);
			const add = shown.add;
			shown.add = (more) => { all.push(...more); add(more); fill(more); };
			fill(invoices);
			return shown;
		}, ctx.query.get('status') ? nothing('No invoice fits', 'Try another status.') : nothing('No invoices yet', 'An order is invoiced on its own page.'));
	};
	ctx.at.append(heading('Invoices'), filters(ctx, { status }, load)(status), place);
	await load();
}

export async function show(ctx) {
	let invoice = await ctx.get(`/invoices/${ctx.parameter}`);
	ctx.title(`Invoice ${invoice.id.slice(0, 8)}`);
	const customer = await ctx.get(`/customers/${invoice.customerId}`);
	const path = `/invoices/${invoice.id}`;
	/** Names of those who booked something, from the order's history. */
	const names = new Map();
	async function recall() {
		if (!invoice.orderId || !invoice.payments.length) return;
		for (const item of (await ctx.get(`/orders/${invoice.orderId}/history?limit=200`)).items) names.set(item.by, item.byName);
	}
	const writes = ctx.may('credit:write');
	const reload = async () => { invoice = await ctx.get(path); await recall(); render(); };

	async function book() {
		const done = await pay(ctx, invoice);
		if (!done) return;
		await reload();
		say(done);
	}
	async function take() {
		const reason = await ask('Take the invoice back', 'Why?', 'Void the invoice', 'danger');
		if (!reason) return;
		await ctx.send('POST', `${path}/void`, { reason }, 'Void an invoice');
		await reload();
		say('The invoice is void; its units can be invoiced again.');
	}
	function render() {
		ctx.at.replaceChildren(heading(`Invoice ${invoice.id.slice(0, 8)}`, badge(invoice.status), invoice.disputed ? badge('disputed', 'bad') : null,
			writes && invoice.status !== 'void' ? button('Book a payment', book, due(invoice) ? 'main' : '') : null,
			writes && invoice.status === 'awaiting_payment' && invoice.paidMinor === 0 ? button('Void', take, 'quiet') : null),
		panel(null, facts([['Customer', link(`#/customer/${customer.id}`, customer.name)], ['Order', invoice.orderId ? link(`#/order/${invoice.orderId}`, 'Open the order') : 'none'],
			['Total', money(invoice.totalMinor, invoice.currency)], ['Received', money(invoice.paidMinor, invoice.currency)],
			invoice.refundedMinor ? ['Went back', money(invoice.refundedMinor, invoice.currency)] : null, ['Due', money(due(invoice), invoice.currency)],
			['Made', time(invoice.createdAt)], ['Paid', invoice.paidAt ? time(invoice.paidAt) : null], ['Id', h('code', invoice.id)]])),
		panel('Payments', invoice.payments.length ? table('Payments', [['When', (p) => time(p.at)], ['What', (p) => words(p.kind)],
			['Reference', (p) => p.reference, 'grow'], ['By', (p) => muted(names.get(p.actor) ?? p.actor)], ['Amount', (p) => money(p.amountMinor, p.currency ?? invoice.currency), 'num']], invoice.payments)
			: nothing('Nothing was received yet', 'Payments through Stripe arrive by themselves.')));
	}
	await recall();
	render();
}
