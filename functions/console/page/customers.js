// Customers: the list, and one with its limit, hold, orders and invoices.
import { bar } from './chart.js';
import { compare, resolve } from './conflict.js';
import { orderTable } from './orders.js';
import { invoiceTable } from './invoices.js';
import { standing } from './new-order.js';
import { amountText, badge, facts, field, filters, h, heading, money, muted, nothing, pages, panel, query, readAmount, rowLink, run, say, search, table, time } from './ui.js';

export async function list(ctx) {
	ctx.title('Customers');
	const q = search('Name');
	const place = h('div');
	const load = () => pages(place, ctx, `/customers${query({ q: ctx.query.get('q') })}`, (customers) => table('Customers', [
		['Name', (c) => rowLink(`#/customer/${c.id}`, c.name), 'grow'],
		['State', (c) => (c.onHold ? badge('on hold', 'bad') : c.creditLimitMinor !== null && c.exposureMinor > c.creditLimitMinor ? badge('over limit', 'warn') : null)],
		['Credit limit', (c) => (c.creditLimitMinor === null ? muted('none') : money(c.creditLimitMinor, c.currency)), 'num'],
		['Exposure', (c) => money(c.exposureMinor, c.currency), 'num'],
		['Used', (c) => c.creditLimitMinor !== null && bar(c.exposureMinor, 0, c.creditLimitMinor, 'Part of the credit limit that is used')],
	], customers), ctx.query.get('q') ? nothing('No customer fits', 'Names are found by how they begin.') : nothing('No customers yet', 'Customers are imported with holdfast admin.'));
	ctx.at.append(heading('Customers'), filters(ctx, { q }, load)(q), place);
	await load();
}

export async function show(ctx) {
	let customer = await ctx.get(`/customers/${ctx.parameter}`);
	const top = h('div');
	const orders = h('div');
	const invoices = h('div');
	const path = `/customers/${customer.id}`;

	function render() {
		ctx.title(customer.name);
		const { currency } = customer;
		top.replaceChildren(heading(customer.name, customer.onHold ? badge('on hold', 'bad') : badge('active')),
			h('div.columns', panel('Standing', standing(customer), facts([['Exposure', money(customer.exposureMinor, currency)],
				['Credit limit', customer.creditLimitMinor === null ? 'none' : money(customer.creditLimitMinor, currency)],
				['Saved', [time(customer.updatedAt), muted(customer.updatedByName ? ` by ${customer.updatedByName}` : '')]]])),
			ctx.may('credit:write') ? form() : ''));
	}
	function form(from = customer, yours = {}) {
		const start = { name: from.name, creditLimitMinor: from.creditLimitMinor, onHold: from.onHold, ...yours };
		const name = h('input', { maxlength: 200, required: true, value: start.name });
		const limit = h('input', { inputmode: 'decimal', value: start.creditLimitMinor === null ? '' : amountText(start.creditLimitMinor, customer.currency) });
		const hold = h('input', { type: 'checkbox', checked: start.onHold });
		const save = h('button.main', 'Save');
		return h('form.panel.form', { onsubmit: async (event) => {
			event.preventDefault();
			const typed = limit.value.trim() === '' ? null : readAmount(limit.value, customer.currency);
			limit.mistake(limit.value.trim() !== '' && (typed === null || typed < 0) ? 'No amount' : '');
			if (limit.getAttribute('aria-invalid')) { limit.focus(); return; }
			await run(save, () => store({ name: name.value.trim(), creditLimitMinor: typed, onHold: hold.checked }));
		} }, field('Name', name, { wide: true }), field(`Credit limit, ${customer.currency}`, limit, { hint: 'Empty is no limit.' }),
		h('label.check', hold, 'On hold: nothing new is ordered or committed'), h('div.buttons', save));
	}
	async function store(wanted, base = customer) {
		const changed = Object.fromEntries(Object.entries(wanted).filter(([name, value]) => value !== base[name]));
		if (!Object.keys(changed).length) { say('Nothing was changed.'); return; }
		try {
			const done = await ctx.send('PATCH', path, { baseVersion: base.version, ...changed }, `Save ${base.name}`);
			customer = done.customer;
			render();
			say('Saved.');
		} catch (error) {
			if (error.code !== 'version_conflict') throw error;
			const { current } = error.problem;
			const rows = compare([{ name: 'name', label: 'Name', show: (v) => v ?? '–' },
				{ name: 'creditLimitMinor', label: 'Credit limit', show: (v) => (v === null ? 'none' : money(v, customer.currency)) },
				{ name: 'onHold', label: 'On hold', show: (v) => (v ? 'yes' : 'no') }], [], base, current, { ...base, ...changed });
			const decided = await resolve(`${base.name} was saved by somebody else`, rows, { by: current.updatedByName, at: current.updatedAt, version: current.version });
			if (decided === undefined) return;
			customer = current;
			render();
			if (decided !== 'theirs' && Object.keys(decided).length) await store({ name: current.name, creditLimitMinor: current.creditLimitMinor, onHold: current.onHold, ...decided }, current);
		}
	}
	render();
	ctx.at.append(top, panel('Orders', orders), panel('Invoices', invoices));
	await Promise.all([
		pages(orders, ctx, `/orders?customerId=${customer.id}&limit=20`, (found) => orderTable(found, { customer: false }), nothing('No orders', 'Nothing has been ordered for this customer.')),
		pages(invoices, ctx, `/invoices?customerId=${customer.id}&limit=20`, (found) => invoiceTable(found, null), nothing('No invoices')),
	]);
}
