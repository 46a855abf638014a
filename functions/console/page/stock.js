// Stock: what is there, what is promised, what is left to sell; and a style's prices.
import { compare, resolve } from './conflict.js';
import { amountText, button, dialog, endings, field, filters, h, heading, money, nothing, number, pages, poll, query, readAmount, run, say, search, table } from './ui.js';

const LOOK_EVERY_MS = 10_000;

export async function list(ctx) {
	ctx.title('Stock');
	const q = search('Code');
	const place = h('div');
	const load = () => pages(place, ctx, `/skus${query({ q: ctx.query.get('q'), limit: 100 })}`, (skus) => table('Stock', [
		['SKU', (s) => h('span.code', { 'data-sku': s.id }, s.code)],
		['Style', (s) => (ctx.may('orders:write') ? button(s.styleName, () => prices(ctx, s.styleId), 'linklike', { title: 'Prices' }) : s.styleName), 'grow'],
		['On hand', (s) => number(s.onHand), 'num'],
		['On order', (s) => number(s.onOrder), 'num'],
		['Committed', (s) => number(s.allocated), 'num'],
		['Left to sell', (s) => h('strong', { class: s.ats > 0 ? 'good' : 'mistake', 'data-ats': s.id }, number(s.ats)), 'num'],
	], skus), ctx.query.get('q') ? nothing('No SKU fits', 'Codes are found by how they begin.') : nothing('No SKUs yet', 'Styles and SKUs are imported with holdfast admin.'));
	ctx.at.append(heading('Stock'), filters(ctx, { q }, load)(q), place);
	await load();
	poll(ctx, LOOK_EVERY_MS, async () => {
		const page = await ctx.get(`/skus${query({ q: ctx.query.get('q'), limit: 100 })}`);
		for (const sku of page.items) {
			const shown = place.querySelector(`[data-ats="${sku.id}"]`);
			if (!shown || shown.textContent === number(sku.ats)) continue;
			const cells = shown.closest('tr').cells;
			[sku.onHand, sku.onOrder, sku.allocated].forEach((value, n) => { cells[n + 2].textContent = number(value); });
			shown.textContent = number(sku.ats);
			shown.className = `${sku.ats > 0 ? 'good' : 'mistake'} moved`;
		}
	});
}

async function prices(ctx, id) {
	const style = await ctx.client.get(`/styles/${id}`);
	const boxes = {};
	const box = (name, label) => { boxes[name] = h('input', { inputmode: 'decimal', value: amountText(style[name], style.currency), autofocus: name === 'wholesaleMinor' }); return field(`${label}, ${style.currency}`, boxes[name]); };
	const changed = await dialog(`Prices of ${style.name}`, (close) => h('form', { onsubmit: (event) => {
		event.preventDefault();
		const body = {};
		for (const [name, control] of Object.entries(boxes)) {
			const typed = readAmount(control.value, style.currency);
			control.mistake(typed === null || typed < 0 ? 'No amount' : '');
			if (typed !== style[name]) body[name] = typed;
		}
		if (!Object.values(body).some((value) => value === null || value < 0)) close(body);
	} }, box('wholesaleMinor', 'Wholesale'), box('msrpMinor', 'Retail (MSRP)'), endings(close, h('button.main', 'Save'))));
	if (changed && Object.keys(changed).length) await run(null, () => store(ctx, style, changed));
}
async function store(ctx, style, changed) {
	try {
		const done = await ctx.send('PATCH', `/styles/${style.id}`, { baseVersion: style.version, ...changed }, `Save the prices of ${style.name}`);
		say(`Saved: ${money(done.style.wholesaleMinor, style.currency)} wholesale.`);
	} catch (error) {
		if (error.code !== 'version_conflict') throw error;
		const { current } = error.problem;
		const show = (v) => money(v, style.currency);
		const rows = compare([{ name: 'wholesaleMinor', label: 'Wholesale', show }, { name: 'msrpMinor', label: 'Retail (MSRP)', show }], [], style, current, { ...style, ...changed });
		const decided = await resolve(`${style.name} was saved by somebody else`, rows, { by: current.updatedByName, at: current.updatedAt, version: current.version });
		if (decided && decided !== 'theirs' && Object.keys(decided).length) await store(ctx, current, decided);
	}
}
