// One order: header, money, size run with live ATS, commitment, invoices, history.
import { compare, resolve } from './conflict.js';
import { findSkus, PASTE_MOST, readPaste, runs } from './size-run.js';
import { amountText, badge, button, confirm, count, day, dialog, endings, facts, field, h, heading, link, money, muted, notice, number, panel, poll, readAmount, redraw, say, sum, tell, time, units, words } from './ui.js';
import { invoiceTable, pay } from './invoices.js';

const LOOK_EVERY_MS = 4000;
/** Runs whose ATS is asked for at a time. */
const RUNS_POLLED = 8;
const FIELDS = [
	{ name: 'customerPo', label: 'Customer PO', show: (v) => v ?? '–' },
	{ name: 'shipWindowStart', label: 'Ship from', show: day },
	{ name: 'shipWindowEnd', label: 'Ship by', show: day },
	{ name: 'notes', label: 'Notes', show: (v) => v ?? '–' },
];
const openQty = (line) => line.qty - line.qtyAllocated - line.qtyShipped;
const plain = (line) => ({ skuId: line.skuId, code: line.code, qty: line.qty, unitPriceMinor: line.unitPriceMinor });

/** The editable values of an order, by name: fields, and quantity and price of each SKU. */
function values(order) {
	const all = Object.fromEntries(FIELDS.map(({ name }) => [name, order[name] ?? null]));
	for (const line of order.lines) { all[`qty ${line.skuId}`] = line.qty; all[`price ${line.skuId}`] = line.unitPriceMinor; }
	return all;
}

export async function show(ctx) {
	let order = await ctx.get(`/orders/${ctx.parameter}`);
	ctx.title(`Order ${order.number}`);
	const id = order.id;
	const path = `/orders/${id}`;
	const writes = ctx.may('orders:write');
	const draftName = `holdfast.draft.${id}`;
	/** What is being edited: the order it began from, fields, lines. */
	let draft = recall();
	const ats = new Map();
	let refused = new Map();
	let newer = draft.base.version === order.version ? null : order;
	/** Counts what was done here: a look that began before it would show what was before. */
	let acts = 0;
	/** Whether the order has moved since the size run was drawn. */
	let behind = false;

	function fresh(from) {
		return { base: from, fields: Object.fromEntries(FIELDS.map(({ name }) => [name, from[name] ?? null])), lines: from.lines.map(plain) };
	}
	function recall() {
		try { const kept = JSON.parse(sessionStorage.getItem(draftName) ?? 'null'); if (kept && order.status === 'open') return kept; } catch { /* begin anew */ }
		return fresh(order);
	}
	const mine = () => ({ ...draft.fields, ...Object.fromEntries(draft.lines.flatMap((l) => [[`qty ${l.skuId}`, l.qty], [`price ${l.skuId}`, l.unitPriceMinor]])) });
	function changes() {
		const [base, now] = [values(draft.base), mine()];
		return [...new Set([...Object.keys(base), ...Object.keys(now)])].filter((name) => (base[name] ?? null) !== (now[name] ?? null));
	}
	function body() {
		const changed = changes();
		const sent = {};
		for (const { name } of FIELDS) if (changed.includes(name)) sent[name] = draft.fields[name];
		if (changed.some((name) => name.includes(' '))) sent.lines = draft.lines.map(({ skuId, qty, unitPriceMinor }) => ({ skuId, qty, unitPriceMinor }));
		return sent;
	}
	function edited() {
		const dirty = changes().length;
		if (dirty) sessionStorage.setItem(draftName, JSON.stringify(draft)); else sessionStorage.removeItem(draftName);
		saveBar.hidden = !dirty;
		saveText.textContent = `${count(dirty, 'change')} not saved`;
		// What is committed is the stored order, so a changed size run is saved first.
		for (const commit of commits) commit.disabled = dirty > 0 || commit.dataset.none === '1';
	}
	function take(from) {
		acts += 1;
		order = from;
		draft = fresh(from);
		sessionStorage.removeItem(draftName);
		newer = null;
		refused = new Map();
		render();
		// The bar that was pressed is gone.
		if (document.activeElement === document.body) title.querySelector('h1').focus({ preventScroll: true });
	}
	const reload = async () => take(await ctx.get(path));

	// ── Saving ────────────────────────────────────────────────────────────────────────────────────────────────
	async function save() {
		const wrong = ctx.at.querySelector('[aria-invalid=true]');
		if (wrong) { wrong.focus(); return; }
		try {
			const done = await ctx.send('PATCH', path, { baseVersion: draft.base.version, ...body() }, `Save order ${order.number}`);
			take(done.order);
			say(`Saved as version ${done.version}.`);
			history();
		} catch (error) {
			if (error.code === 'version_conflict') { await conflict(error.problem.current); return; }
			marked(error);
			throw error;
		}
	}
	async function conflict(current) {
		const codes = new Map([...draft.base.lines, ...current.lines, ...draft.lines].map((l) => [l.skuId, l.code]));
		const lines = runs([...codes].map(([sku, code]) => ({ sku, code }))).flatMap((group) => group.items).flatMap(({ sku, code }) => [
			{ name: `qty ${sku}`, label: code, show: (v) => (v === undefined || v === null ? 'not on the order' : units(v)) },
			{ name: `price ${sku}`, label: `${code}, price`, show: (v) => (v === undefined || v === null ? '–' : money(v, order.currency)) }]);
		const rows = compare(FIELDS, lines, values(draft.base), values(current), mine());
		const decided = rows.some((row) => row.side === 'yours' || row.side === 'both')
			? await resolve(`Order ${order.number} was saved by somebody else`, rows, { by: current.updatedByName, at: current.updatedAt, version: current.version }) : 'theirs';
		if (decided === undefined) { newer = current; render(); return; }
		const kept = decided === 'theirs' ? {} : decided;
		const next = fresh(current);
		for (const [name, value] of Object.entries(kept)) {
			if (!name.includes(' ')) { next.fields[name] = value; continue; }
			const [what, sku] = name.split(' ');
			let line = next.lines.find((l) => l.skuId === sku);
			if (!line && value !== null) { line = { skuId: sku, code: codes.get(sku), qty: 0, unitPriceMinor: draft.lines.find((l) => l.skuId === sku)?.unitPriceMinor ?? 0 }; next.lines.push(line); }
			if (line && what === 'qty') line.qty = value ?? 0;
			if (line && what === 'price' && value !== null) line.unitPriceMinor = value;
		}
		next.lines = next.lines.filter((line) => line.qty > 0);
		order = current;
		draft = next;
		newer = null;
		if (changes().length === 0) { take(current); say('Showing the order as it is stored.'); return; }
		render();
		await save();
	}

	// ── Commitment ────────────────────────────────────────────────────────────────────────────────────────────
	/** What an answer says is left to sell. */
	function left(lines) {
		acts += 1;
		for (const line of lines) ats.set(line.skuId, line.atsAfter);
	}
	/** A refusal's lines are shown beside theirs. */
	function marked(error) {
		refused = new Map((error.problem?.lines ?? []).map((line) => [line.skuId, { ...line, code: error.code }]));
		if (refused.size) render();
	}
	async function commit(lines, partial) {
		refused = new Map();
		const wanted = sum(lines, (l) => l.qty);
		try {
			const done = await ctx.send('POST', `${path}/allocate`, { lines, ...(partial ? { partial: true } : {}) }, `Commit ${units(wanted)} to order ${order.number}`);
			left(done.lines);
			const got = sum(done.lines, (l) => l.qty);
			const cut = done.lines.filter((l) => l.limitedBy);
			await reload();
			for (const line of cut) refused.set(line.skuId, { requested: line.requested, available: line.qty, code: line.limitedBy, partial: true });
			render();
			say(`Committed ${units(got)}${got < wanted ? ` of ${number(wanted)}` : ''}. Left to sell: ${[...new Map(done.lines.map((l) => [l.skuId, l.atsAfter]))].slice(0, 4).map(([sku, left]) => `${order.lines.find((l) => l.skuId === sku)?.code} ${number(left)}`).join(', ')}.`);
		} catch (error) { marked(error); throw error; }
		history();
	}
	async function release(line) {
		const qty = h('input', { type: 'number', min: 1, max: line.qtyAllocated, value: line.qtyAllocated, required: true, autofocus: true });
		const wanted = await dialog(`Release ${line.code}`, (close) => h('form', { onsubmit: (event) => { event.preventDefault(); close(Number(qty.value)); } },
			h('p', `${units(line.qtyAllocated)} are committed to this order. What is released can be sold to anybody at once.`),
			field('Units to release', qty), endings(close, h('button.danger', 'Release'))));
		if (!wanted) return;
		const done = await ctx.send('POST', `${path}/release`, { skuId: line.skuId, qty: wanted }, `Release ${units(wanted)} of ${line.code}`);
		left(done.lines);
		await reload();
		say(`Released ${units(wanted)} of ${line.code}; ${number(done.lines[0].atsAfter)} left to sell.`);
		history();
	}
	const REASONS = {
		insufficient_ats: (r) => `Short by ${number(r.requested - r.available)}: ${number(r.available)} left to sell`,
		exceeds_ordered: (r) => `The order wants ${number(r.available)} more`,
		exceeds_allocated: (r) => `Only ${number(r.available)} are committed`,
		below_allocated: (r) => `Not below ${number(r.available)}, which are committed or shipped`,
		unknown_sku: () => 'This SKU does not exist', sku_not_on_order: () => 'Not on the stored order',
		credit_limit_exceeded: (r) => `Cut to ${number(r.available)} by the credit limit`,
	};
	const reason = (r) => (r.partial && r.code !== 'credit_limit_exceeded' ? `${number(r.available)} of ${number(r.requested)} committed: ` : '') + (r.partial && r.code === 'insufficient_ats' ? 'no more are left to sell' : (REASONS[r.code] ?? (() => words(r.code)))(r));

	// ── Parts of the page ─────────────────────────────────────────────────────────────────────────────────────
	const saveText = h('span', { role: 'status' });
	const saveBar = h('div.save-bar', { hidden: true }, saveText, h('div.actions',
		button('Undo', () => take(order)), button('Save', save, 'main')));
	const commits = [];
	// Each is drawn anew by itself: a field that somebody types in is left alone while all around it moves.
	const title = h('div');
	const banner = h('div');
	const sums = h('div');
	const form = h('div');
	const run = h('div');
	const invoices = h('div');
	const historyPlace = h('div');
	ctx.at.append(title, banner, h('div.columns', sums, form), run, saveBar, invoices, historyPlace);

	function act(title, text, label, path_, done, className = 'danger') {
		return button(title, async () => {
			if (!await confirm(`${title}?`, text, label, className)) return;
			const answer = await ctx.send('POST', path_, {}, `${title} ${order.number}`);
			take(answer);
			say(done);
			history();
		}, 'quiet');
	}
	/** Somebody else's save, told while one edits. */
	function tellNewer() {
		banner.replaceChildren(newer && newer.version !== draft.base.version
			? notice('warn', [h('strong', `${newer.updatedByName ?? 'Somebody'} saved version ${newer.version} `), time(newer.updatedAt), '. You see version ', String(draft.base.version), '.'],
				button(changes().length ? 'Compare with mine' : 'Show it', () => (changes().length ? conflict(newer) : reload()))) : '');
	}
	const value = (of) => sum(order.lines, (l) => of(l) * l.unitPriceMinor);
	const worth = (of) => [units(sum(order.lines, of)), muted(` ${money(value(of), order.currency)}`)];
	function head() {
		const isOpen = order.status === 'open';
		const shipped = sum(order.lines, (l) => l.qtyShipped);
		title.replaceChildren(heading(`Order ${order.number}`, badge(order.status),
			writes && isOpen ? (shipped ? act('Close the order', 'What was shipped stays. What is still committed is released, and the rest is dropped. This is final.', 'Close the order', `${path}/close`, 'Closed. The order is shipped.') : act('Cancel the order', 'Everything that is committed to it is released. This is final.', 'Cancel the order', `${path}/cancel`, 'Cancelled.')) : null));
		sums.replaceChildren(panel(null, facts([['Customer', link(`#/customer/${order.customerId}`, order.customerName)],
			['Ordered', worth((l) => l.qty)], ['Committed', worth((l) => l.qtyAllocated)], ['Shipped', units(shipped)], ['Invoiced', worth((l) => l.qtyInvoiced)],
			['Saved', [time(order.updatedAt), muted(` by ${order.updatedByName ?? '?'}, version ${order.version}`)]]])));
	}
	function fields() {
		const control = (f) => {
			const value = draft.fields[f.name] ?? '';
			const made = f.name === 'notes' ? h('textarea', { maxlength: 2000, rows: 2, value }) : h('input', { type: f.name === 'customerPo' ? 'text' : 'date', value, maxlength: 64 });
			made.addEventListener('input', () => { draft.fields[f.name] = made.value || null; edited(); });
			return field(f.label, made, { wide: f.name === 'notes' });
		};
		form.replaceChildren(writes && order.status === 'open' ? h('section.panel.form', FIELDS.map(control)) : panel(null, facts(FIELDS.map((f) => [f.label, f.show(order[f.name])]))));
	}
	function sizeRun() {
		behind = false;
		const isOpen = writes && order.status === 'open';
		const stored = new Map(order.lines.map((line) => [line.skuId, line]));
		const head = ['SKU', 'Ordered', 'Committed', 'Shipped', 'Invoiced', 'Left to sell', 'Price', 'Amount', ''];
		const rows = runs(draft.lines).flatMap((group) => [
			group.items.length > 1 ? h('tr.run', h('th', { scope: 'rowgroup', colspan: head.length }, group.run, muted(` ${units(sum(group.items, (l) => l.qty))}`))) : null,
			...group.items.map((line) => row(line, stored.get(line.skuId), isOpen))]).filter(Boolean);
		const wanted = order.lines.filter((l) => openQty(l) > 0).map((l) => ({ skuId: l.skuId, qty: openQty(l) }));
		commits.length = 0;
		const commitButton = (text, partial, className) => {
			const made = button(text, () => commit(wanted, partial), className, { disabled: !wanted.length, 'data-none': wanted.length ? '0' : '1' });
			commits.push(made);
			return made;
		};
		const open = sum(wanted, (l) => l.qty);
		redraw(run, panel('Size run',
			h('div.table', h('table.size-run', h('caption.hidden', 'Size run'),
				h('thead', h('tr', head.map((text, n) => h('th', { scope: 'col', class: n ? 'num' : null }, text || h('span.hidden', 'Actions'))))),
				h('tbody', rows))),
			isOpen ? h('div.under', h('div.actions', button('Add SKUs', addSkus), button('Paste from a spreadsheet', paste)),
				h('div.actions', open ? muted(`${units(open)} not committed`) : null,
					commitButton('Commit what there is', true, ''), commitButton(open ? `Commit all ${number(open)}` : 'All is committed', false, 'main'))) : null));
		edited();
	}
	function row(line, stored, isOpen) {
		const left = h('span', { 'data-ats': line.skuId }, ats.has(line.skuId) ? number(ats.get(line.skuId)) : '…');
		const mark = refused.get(line.skuId);
		let qty = number(line.qty);
		let price = money(line.unitPriceMinor, order.currency);
		const amount = h('span', money(line.qty * line.unitPriceMinor, order.currency));
		if (isOpen) {
			qty = h('input', { type: 'number', class: 'qty', min: 1, max: 1000000, value: line.qty, 'aria-label': `Ordered ${line.code}` });
			qty.addEventListener('input', () => {
				const typed = Number(qty.value);
				const fits = Number.isInteger(typed) && typed >= 1 && typed <= 1_000_000;
				if (fits) { qty.removeAttribute('aria-invalid'); line.qty = typed; } else qty.setAttribute('aria-invalid', 'true');
				amount.textContent = money(line.qty * line.unitPriceMinor, order.currency);
				edited();
			});
			price = h('input.price', { inputmode: 'decimal', value: line.unitPriceMinor === null ? '' : amountText(line.unitPriceMinor, order.currency), 'aria-invalid': line.unitPriceMinor === null && 'true', 'aria-label': `Price of ${line.code}, ${order.currency}` });
			price.addEventListener('input', () => {
				const typed = readAmount(price.value, order.currency);
				if (typed === null || typed < 0) price.setAttribute('aria-invalid', 'true');
				else { price.removeAttribute('aria-invalid'); line.unitPriceMinor = typed; amount.textContent = money(line.qty * typed, order.currency); }
				edited();
			});
		}
		const cell = (label, value, className = 'num') => h('td', { class: className, 'data-label': label }, value);
		const open = stored ? openQty(stored) : 0;
		const one = isOpen && stored && open > 0 ? button('Commit', () => commit([{ skuId: line.skuId, qty: open }], false), 'small', { 'aria-label': `Commit ${open} of ${line.code}` }) : null;
		if (one) commits.push(one);
		return h('tr', { class: mark ? 'short' : null }, h('th', { scope: 'row', class: 'code' }, line.code, mark ? h('span.mistake', reason(mark)) : null),
			cell('Ordered', qty), cell('Committed', stored ? number(stored.qtyAllocated) : '–'), cell('Shipped', stored ? number(stored.qtyShipped) : '–'), cell('Invoiced', stored ? number(stored.qtyInvoiced) : '–'),
			cell('Left to sell', left, 'num ats'), cell('Price', price), cell('Amount', amount),
			cell('', [one,
				isOpen && stored?.qtyAllocated ? button('Release', () => release(stored), 'small quiet', { 'aria-label': `Release ${line.code}` }) : null,
				isOpen && !(stored?.qtyAllocated || stored?.qtyShipped) && draft.lines.length > 1 ? button('Remove', () => { draft.lines = draft.lines.filter((l) => l !== line); sizeRun(); }, 'small quiet', { 'aria-label': `Remove ${line.code}` }) : null], 'act'));
	}
	function render() { head(); tellNewer(); fields(); sizeRun(); }

	// ── More lines ────────────────────────────────────────────────────────────────────────────────────────────
	async function put(skus, quantities) {
		const prices = new Map();
		for (const styleId of new Set(skus.map((s) => s.styleId))) {
			const style = await ctx.client.get(`/styles/${styleId}`);
			// In another currency it has no price until somebody enters one.
			prices.set(styleId, style.currency === order.currency ? style.wholesaleMinor : null);
		}
		for (const sku of skus) {
			const line = draft.lines.find((l) => l.skuId === sku.id);
			ats.set(sku.id, sku.ats);
			if (line) line.qty = quantities.get(sku.id); else draft.lines.push({ skuId: sku.id, code: sku.code, qty: quantities.get(sku.id), unitPriceMinor: prices.get(sku.styleId) });
		}
		sizeRun();
	}
	async function addSkus() {
		const { pickSkus } = await import('./new-order.js');
		const picked = await pickSkus(ctx.client);
		if (picked?.length) await put(picked.map((p) => p.sku), new Map(picked.map((p) => [p.sku.id, p.qty])));
	}
	async function paste() {
		const { askPaste } = await import('./new-order.js');
		const text = await askPaste();
		if (!text) return;
		const read = readPaste(text);
		const [lines, wrong] = [read.lines.slice(0, PASTE_MOST), read.wrong];
		if (read.lines.length > PASTE_MOST) wrong.push(`what follows the first ${PASTE_MOST} codes`);
		const skus = await findSkus(ctx.client, lines.map((l) => l.code));
		const known = lines.filter((l) => skus.has(l.code.toUpperCase()));
		await put(known.map((l) => skus.get(l.code.toUpperCase())), new Map(known.map((l) => [skus.get(l.code.toUpperCase()).id, l.qty])));
		const bad = [...wrong, ...lines.filter((l) => !skus.has(l.code.toUpperCase())).map((l) => `${l.code}: no such SKU`)];
		if (bad.length) tell(new Error(`${count(known.length, 'line')} taken over. Not taken: ${bad.slice(0, 10).join('; ')}${bad.length > 10 ? ' …' : ''}`)); else say(`${count(known.length, 'line')} taken over.`);
	}

	// ── Invoices and history ──────────────────────────────────────────────────────────────────────────────────
	const book = (invoice) => (invoice.status === 'awaiting_payment' ? button('Book a payment', async () => {
		const done = await pay(ctx, invoice);
		if (!done) return;
		await history();
		say(done);
	}, 'small') : null);
	async function showInvoices() {
		const page = await ctx.get(`/invoices?orderId=${id}`);
		const open = (l) => Math.max(0, l.qtyAllocated + l.qtyShipped - l.qtyInvoiced);
		const due = sum(order.lines, open);
		redraw(invoices, panel('Invoices', page.items.length ? invoiceTable(page.items, null, ctx.may('credit:write') ? book : null) : h('p.muted', 'Nothing has been invoiced.'),
			writes && due ? h('div.under', muted(`${units(due)} committed or shipped and not invoiced`),
				button(`Invoice ${money(value(open), order.currency)}`, async () => {
					const done = await ctx.send('POST', `${path}/invoices`, {}, `Invoice order ${order.number}`);
					acts += 1;
					order = await ctx.get(path);
					head();
					sizeRun();
					await showInvoices();
					history();
					say(`Invoiced ${money(done.totalMinor, done.currency)}.`);
				}, 'main')) : null));
	}
	const SAYS = {
		allocated: (d) => `committed ${units(d.qty)} of ${d.code}`, released: (d) => `released ${units(d.qty)} of ${d.code}`,
		allocated_units_shipped: (d) => `shipped ${units(d.qty)} of ${d.code}`,
		invoiced: (d) => ['invoiced ', link(`#/invoice/${d.invoiceId}`, money(d.totalMinor, d.currency))],
		invoice_voided: (d) => `voided an invoice: ${d.reason ?? ''}`, payment: (d) => `booked ${money(d.amountMinor, d.currency)} (${d.reference})`,
		refund: (d) => `refunded ${money(Math.abs(d.amountMinor), d.currency)}`,
		saved: (d) => `saved version ${d.version}: ${changedText(d)}`, created: () => 'created the order', cancelled: () => 'cancelled the order', closed: () => 'closed the order', shipped: () => 'completed the shipment',
	};
	function changedText(details) {
		const names = Object.keys(details.after ?? {});
		return names.map((name) => {
			if (name === 'lines') return 'size run';
			const shown = FIELDS.find((f) => f.name === name);
			return shown ? `${shown.label} ${shown.show(details.before?.[name])} → ${shown.show(details.after[name])}` : words(name);
		}).join(', ');
	}
	async function history() {
		await showInvoices();
		const list = h('ol.history');
		const more = h('div.more');
		const load = async (after) => {
			const page = await ctx.get(`${path}/history?limit=100${after ? `&after=${after}` : ''}`);
			list.append(...page.items.map((item) => h('li', h('span.strong', item.byName ?? item.by), ' ', (SAYS[item.action] ?? (() => words(item.action)))(item.details), ' ', muted(time(item.at)))));
			more.replaceChildren(...(page.next ? [button('Show more', () => load(page.next))] : []));
		};
		await load(null);
		historyPlace.replaceChildren(panel('History', list.children.length ? list : h('p.muted', 'Nothing has happened yet.'), more));
	}

	// ── Live ──────────────────────────────────────────────────────────────────────────────────────────────────
	async function look() {
		const before = acts;
		const seen = await ctx.get(path);
		if (before !== acts) return;
		if (seen.version > draft.base.version && newer?.version !== seen.version) { newer = seen; tellNewer(); }
		const moved = seen.version === order.version && JSON.stringify(seen.lines) !== JSON.stringify(order.lines);
		if (moved) { order = seen; behind = true; head(); history(); }
		// What is typed into would lose the keys that follow.
		if (behind && !run.contains(document.activeElement)) sizeRun();
		await lookAts();
	}
	/** Of a few runs at a time; of a long order those whose turn it is. */
	let turn = 0;
	async function lookAts() {
		const before = acts;
		const all = runs(draft.lines);
		const asked = all.length <= RUNS_POLLED ? all : [...all, ...all].slice(turn, turn + RUNS_POLLED);
		turn = (turn + asked.length) % (all.length || 1);
		for (const group of asked) {
			const page = await ctx.get(`/skus?q=${encodeURIComponent(group.run)}&limit=200`);
			if (before !== acts) return;
			for (const sku of page.items) {
				const shown = run.querySelector(`[data-ats="${sku.id}"]`);
				if (shown && ats.has(sku.id) && ats.get(sku.id) !== sku.ats) {
					shown.classList.remove('moved');
					requestAnimationFrame(() => shown.classList.add('moved'));
					shown.title = `was ${number(ats.get(sku.id))} a moment ago`;
				}
				ats.set(sku.id, sku.ats);
				if (shown) shown.textContent = number(sku.ats);
			}
		}
	}
	render();
	await Promise.all([lookAts(), history()]);
	poll(ctx, LOOK_EVERY_MS, look);
	// Else the next look.
	for (let n = RUNS_POLLED; n < runs(draft.lines).length; n += RUNS_POLLED) lookAts().catch(() => {});
}
