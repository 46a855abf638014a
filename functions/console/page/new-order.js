// A new order: customer, dates, and size runs as grids of sizes.
import { findSkus, PASTE_MOST, readPaste, runs, split } from './size-run.js';
import { amountText, badge, button, count, dialog, endings, field, h, heading, link, money, muted, notice, number, panel, readAmount, run, say, sum, units } from './ui.js';
import { bar } from './chart.js';

/** What was entered, over a reload and a look elsewhere. */
const DRAFT = 'holdfast.draft.new-order';

/**
 * An input with a list of what it finds (WAI-ARIA combobox): arrow keys move, Enter takes, Escape closes.
 * find(text) → items; show(item) → content; take(item).
 */
export function combobox(label, find, show, take, attributes = {}) {
	const list = h('ul', { role: 'listbox', id: `list-${crypto.randomUUID().slice(0, 8)}`, 'aria-label': label, hidden: true });
	const box = h('input', { role: 'combobox', 'aria-expanded': 'false', 'aria-controls': list.id, 'aria-autocomplete': 'list', ...attributes });
	let items = [];
	let at = -1;
	let timer = 0;
	let asked = 0;
	// Whether the list is that of the text in the box: Enter must not take of it what nobody means any more.
	let fits = false;
	const mark = (next) => {
		at = next;
		[...list.children].forEach((option, n) => option.setAttribute('aria-selected', String(n === at)));
		if (at >= 0) { box.setAttribute('aria-activedescendant', list.children[at].id); list.children[at].scrollIntoView({ block: 'nearest' }); } else box.removeAttribute('aria-activedescendant');
	};
	const shut = () => { list.hidden = true; box.setAttribute('aria-expanded', 'false'); mark(-1); };
	const choose = (item) => { shut(); run(null, () => take(item, box)); };
	/** Finds what the text of now means; an answer that a later text has overtaken is dropped. Resolves with whether it counts. */
	const look = async () => {
		clearTimeout(timer);
		asked += 1;
		const mine = asked;
		let found = [];
		try { found = await find(box.value.trim()); } catch { /* the list stays empty */ }
		if (mine !== asked) return false;
		items = found;
		fits = true;
		list.replaceChildren(...(items.length ? items.map((item, n) => h('li', { role: 'option', id: `${list.id}-${n}`, 'aria-selected': 'false', onpointerdown: (event) => { event.preventDefault(); choose(item); } }, show(item)))
			: [h('li.muted', { role: 'option', 'aria-disabled': 'true', 'aria-selected': 'false', id: `${list.id}-0` }, 'Nothing found')]));
		// Whoever has gone on meanwhile is not followed by a list.
		if (document.activeElement !== box) return true;
		list.hidden = false;
		box.setAttribute('aria-expanded', 'true');
		mark(items.length ? 0 : -1);
		return true;
	};
	// From here on no answer that is still under way is one to this text.
	box.addEventListener('input', () => { asked += 1; fits = false; clearTimeout(timer); timer = setTimeout(look, 150); });
	box.addEventListener('focus', look);
	box.addEventListener('blur', () => { clearTimeout(timer); shut(); });
	box.addEventListener('keydown', (event) => {
		if (event.key === 'ArrowDown' && list.hidden) look();
		else if (event.key === 'ArrowDown') mark(Math.min(items.length - 1, at + 1));
		else if (event.key === 'ArrowUp') mark(Math.max(0, at - 1));
		else if (event.key === 'Enter' && !fits) look().then((counts) => { if (counts && items[0] && box.value.trim()) choose(items[0]); });
		else if (event.key === 'Enter' && !list.hidden && items[at]) choose(items[at]);
		else if (event.key === 'Escape' && !list.hidden) shut();
		else return;
		event.preventDefault();
		event.stopPropagation();
	});
	return h('div.combobox', field(label, box), list);
}

/** Limit, exposure and hold of a customer, and what is left of the limit. */
export function standing(customer, adds = 0) {
	const { creditLimitMinor: limit, exposureMinor: exposure, currency } = customer;
	if (customer.onHold) return notice('bad', 'This customer is on hold: nothing new can be ordered or committed for it.');
	if (limit === null) return h('p.muted', `No credit limit; ${money(exposure, currency)} open.`);
	const left = limit - exposure - adds;
	return h('div.standing', bar(exposure, adds, limit, `${money(exposure, currency)} of ${money(limit, currency)} used`),
		h('p', { class: left < 0 ? 'mistake' : 'muted' }, left < 0 ? `${money(-left, currency)} over the credit limit of ${money(limit, currency)} if all of it is committed` : `${money(left, currency)} left of ${money(limit, currency)}`));
}

/** Boxes for the sizes of a run, each with what is left to sell. quantities: SKU id → units. */
export function sizeGrid(group, quantities, changed) {
	return h('div.sizes', { role: 'group', 'aria-label': group.run }, group.items.map((sku) => {
		const box = h('input', { type: 'number', min: 0, max: 1000000, value: quantities.get(sku.id) || '', placeholder: '0', 'aria-label': `${sku.code}, units` });
		const left = h('span.muted.small');
		const tellLeft = () => { const over = (quantities.get(sku.id) ?? 0) - sku.ats; left.textContent = over > 0 ? `short ${number(over)}` : `${number(sku.ats)} left`; left.className = over > 0 ? 'mistake small' : 'muted small'; };
		box.addEventListener('input', () => {
			const typed = box.value === '' ? 0 : Number(box.value);
			if (Number.isInteger(typed) && typed >= 0 && typed <= 1_000_000) { box.removeAttribute('aria-invalid'); quantities.set(sku.id, typed); } else box.setAttribute('aria-invalid', 'true');
			tellLeft();
			changed();
		});
		tellLeft();
		return h('label.size', h('span.strong', split(sku.code).size || sku.code), box, left);
	}));
}

/** The runs that a text finds: [{run, items: skus}]. */
const findRuns = async (client, text) => runs((await client.get(`/skus?q=${encodeURIComponent(text)}&limit=100`)).items).slice(0, 30);
const runChoice = (group) => [h('span.strong', group.run), muted(` ${group.items[0].styleName}, ${count(group.items.length, 'size')}, ${number(sum(group.items, (s) => s.ats))} left`)];

/** Asks for SKUs and quantities: [{sku, qty}]. */
export function pickSkus(client) {
	return dialog('Add SKUs', (close) => {
		const grid = h('div');
		const quantities = new Map();
		let group = null;
		const take = button('Add them', () => close(group.items.filter((sku) => quantities.get(sku.id)).map((sku) => ({ sku, qty: quantities.get(sku.id) }))), 'main', { disabled: true });
		return [combobox('Style or code', (text) => findRuns(client, text), runChoice, (chosen, box) => {
			group = chosen;
			box.value = chosen.run;
			quantities.clear();
			grid.replaceChildren(sizeGrid(chosen, quantities, () => { take.disabled = ![...quantities.values()].some((qty) => qty > 0); }));
			grid.querySelector('input')?.focus();
		}, { autofocus: true }), grid, endings(close, take)];
	}, 'wide');
}
export function askPaste() {
	return dialog('Paste from a spreadsheet', (close) => {
		const text = h('textarea', { rows: 8, autofocus: true, spellcheck: 'false', placeholder: 'HARBOR-NVY-M\t12' });
		return h('form', { onsubmit: (event) => { event.preventDefault(); close(text.value.trim() ? text.value : undefined); } },
			field('Cells', text, { wide: true, hint: 'Rows of code and quantity, or a grid: sizes in the first row, runs such as HARBOR-NVY in the first column.' }),
			endings(close, h('button.main', 'Take over')));
	}, 'wide');
}

export async function show(ctx) {
	ctx.title('New order');
	const { client } = ctx;
	let customer = null;
	const quantities = new Map();
	/** [{run, items, price: minor}] */
	const groups = [];
	const styles = new Map();

	const customerPlace = h('div');
	const po = h('input', { maxlength: 64 });
	const from = h('input', { type: 'date' });
	const until = h('input', { type: 'date' });
	const notes = h('textarea', { maxlength: 2000, rows: 2 });
	const place = h('div');
	const totals = h('p.strong', { role: 'status' });
	const wrongs = h('div');

	const lines = () => groups.flatMap((group) => group.items.filter((sku) => quantities.get(sku.id) > 0).map((sku) => ({ skuId: sku.id, qty: quantities.get(sku.id), unitPriceMinor: group.price })));
	const currency = () => customer?.currency ?? [...styles.values()][0]?.currency ?? 'USD';
	const create = button('Create the order', send, 'main');
	function changed() {
		const now = lines();
		const value = sum(now, (l) => l.qty * l.unitPriceMinor);
		totals.textContent = now.length ? `${units(sum(now, (l) => l.qty))}, ${money(value, currency())}` : 'No units yet';
		customerPlace.replaceChildren(customer ? standing(customer, value) : '');
		keep();
	}
	const boxes = { po, from, until, notes };
	function keep() {
		const fields = Object.entries(boxes).map(([name, box]) => [name, box.value]);
		if (customer || groups.length || fields.some(([, text]) => text)) sessionStorage.setItem(DRAFT, JSON.stringify({ customer: customer?.id, groups, quantities: [...quantities], fields }));
		else sessionStorage.removeItem(DRAFT);
	}
	async function recall() {
		const kept = JSON.parse(sessionStorage.getItem(DRAFT) ?? 'null');
		if (!kept) return;
		for (const [name, text] of kept.fields) boxes[name].value = text;
		for (const [sku, qty] of kept.quantities) quantities.set(sku, qty);
		groups.push(...kept.groups);
		for (const { style } of groups) styles.set(style.id, style);
		if (!kept.customer) return;
		customer = await ctx.get(`/customers/${kept.customer}`);
		picker.querySelector('input').value = customer.name;
	}
	async function add(group, focus = true) {
		let known = groups.find((g) => g.run === group.run);
		if (!known) {
			const { styleId } = group.items[0];
			if (!styles.has(styleId)) styles.set(styleId, await client.get(`/styles/${styleId}`));
			const style = styles.get(styleId);
			known = { ...group, style, price: null };
			groups.push(known);
		}
		draw();
		if (focus) place.querySelector(`[data-run="${CSS.escape(group.run)}"] .sizes input`)?.focus();
		return known;
	}
	/** A style's own price where it has one in the currency of the order; in another one a person enters it. */
	function prices() {
		for (const group of groups) if (!group.typed) group.price = group.style.currency === currency() ? group.style.wholesaleMinor : null;
	}
	function draw() {
		prices();
		place.replaceChildren(...groups.map((group) => {
			const price = h('input.price', { inputmode: 'decimal', value: group.price === null ? '' : amountText(group.price, currency()) });
			price.addEventListener('input', () => {
				const typed = readAmount(price.value, currency());
				price.mistake(typed === null || typed < 0 ? 'No amount' : '');
				if (typed !== null && typed >= 0) { group.price = typed; group.typed = true; }
				changed();
			});
			return h('section.run-entry', { 'data-run': group.run }, h('header', h('h3', group.run), muted(group.items[0].styleName),
				button('Remove', () => { groups.splice(groups.indexOf(group), 1); for (const sku of group.items) quantities.delete(sku.id); draw(); }, 'quiet small', { 'aria-label': `Remove ${group.run}` })),
			sizeGrid(group, quantities, changed), priceField(price, group));
		}));
		changed();
	}
	function priceField(price, group) {
		const made = field(`Price each, ${currency()}`, price);
		if (group.price === null) price.mistake(`It has a price in ${group.style.currency} only.`);
		return made;
	}
	async function paste() {
		const text = await askPaste();
		if (!text) return;
		const read = readPaste(text);
		const skus = await findSkus(client, read.lines.slice(0, PASTE_MOST).map((l) => l.code));
		const bad = [...read.wrong];
		const all = runs([...skus.values()]);
		if (read.lines.length > PASTE_MOST) bad.push(`What follows the first ${PASTE_MOST} codes`);
		for (const line of read.lines.slice(0, PASTE_MOST)) {
			const sku = skus.get(line.code.toUpperCase());
			if (!sku) { bad.push(`${line.code}: no such SKU`); continue; }
			quantities.set(sku.id, line.qty);
			await add(all.find((g) => g.items.some((s) => s.id === sku.id)), false);
		}
		draw();
		wrongs.replaceChildren(bad.length ? notice('warn', [h('p.strong', `${count(bad.length, 'row')} could not be taken over`), h('ul', bad.slice(0, 20).map((text_) => h('li', text_)))], button('Close', () => wrongs.replaceChildren(), 'quiet')) : '');
	}
	async function send() {
		const now = lines();
		const box = ctx.at.querySelector('[role=combobox]');
		if (!customer) { box.mistake('Choose a customer.'); box.focus(); return; }
		const wrong = ctx.at.querySelector('[aria-invalid=true]');
		if (wrong) { wrong.focus(); return; }
		if (!now.length) { wrongs.replaceChildren(notice('warn', 'Enter at least one quantity.')); return; }
		const order = await ctx.send('POST', '/orders', { customerId: customer.id, customerPo: po.value || null, shipWindowStart: from.value || null, shipWindowEnd: until.value || null, notes: notes.value || null, lines: now },
			`Create an order of ${units(sum(now, (l) => l.qty))} for ${customer.name}`);
		sessionStorage.removeItem(DRAFT);
		say(`Order ${order.number} is created.`);
		ctx.go(`#/order/${order.id}`);
	}

	const picker = combobox('Customer', async (text) => (await client.get(`/customers?q=${encodeURIComponent(text)}&limit=20`)).items,
		(found) => [h('span.strong', found.name), found.onHold ? badge('on hold', 'bad') : null, muted(found.creditLimitMinor === null ? ` ${found.currency}, no limit` : ` ${money(found.creditLimitMinor - found.exposureMinor, found.currency)} left`)],
		(found, box) => { customer = found; box.value = found.name; box.mistake(''); draw(); }, { required: true });
	// A text that nobody has chosen from the list is no customer, least of all the one before.
	picker.querySelector('input').addEventListener('input', () => { customer = null; changed(); });
	await recall();
	ctx.at.addEventListener('input', keep);
	ctx.at.append(heading('New order', button('Start over', () => { sessionStorage.removeItem(DRAFT); ctx.again(); }, 'quiet'), link('#/orders', 'Back to orders', 'button')),
		h('div.columns', h('section.panel.form', picker, customerPlace),
			h('section.panel.form', field('Customer PO', po), field('Ship from', from), field('Ship by', until), field('Notes', notes, { wide: true }))),
		panel('Size runs', combobox('Add a style or code', (text) => findRuns(client, text), runChoice, (group, box) => { box.value = ''; return add(group); }),
			wrongs, place, h('div.under', button('Paste from a spreadsheet', paste), h('div.actions', totals, create))));
	draw();
}
