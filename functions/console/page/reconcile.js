// The nightly comparison with what the 3PLs count: its runs, what one found, and what was held back for a person.
import { badge, button, confirm, count, day, download, facts, filters, h, heading, muted, nothing, notice, number, pages, panel, poll, query, rowLink, say, select, table, time, words } from './ui.js';

const LOOK_EVERY_MS = 5000;
const TONES = { walking: 'info', measuring: 'info', held: 'bad', booking: 'info', done: 'ok' };
const state = (run) => badge(run.state, TONES[run.state]);
const difference = (run) => (run.varianceUp || run.varianceDown ? `+${number(run.varianceUp)} −${number(run.varianceDown)}` : null);

export async function list(ctx) {
	ctx.title('Reconcile');
	const chosen = select([['', 'Any state'], ['held', 'Held'], ['done', 'Done'], ['booking', 'Booking'], ['dropped', 'Dropped'], ['superseded', 'Superseded']], '', { 'aria-label': 'State' });
	const place = h('div');
	const load = () => pages(place, ctx, `/admin/reconcile${query({ state: ctx.query.get('state') })}`, (runs) => table('Reconciliations', [
		['Night', (r) => rowLink(`#/reconciliation/${r.id}`, day(r.snapshotDate)), 'grow'],
		['State', state],
		['SKUs compared', (r) => number(r.progress.skus), 'num'],
		['Differ', (r) => number(r.progress.variances), 'num'],
		['Units', difference, 'num'],
		['Booked', (r) => number(r.progress.booked), 'num'],
		['Unknown codes', (r) => (r.unknown ? number(r.unknown) : null), 'num'],
		['Began', (r) => time(r.startedAt)],
	], runs), ctx.query.get('state') ? nothing('No run fits', 'Try another state.') : nothing('No runs yet', 'Every night the stock is compared with what the 3PLs count, once an account has an inventory report.'));
	ctx.at.append(heading('Reconcile'), filters(ctx, { state: chosen }, load)(chosen), place);
	await load();
}

export async function show(ctx) {
	const path = `/admin/reconcile/${ctx.parameter}`;
	let run = await ctx.get(path);
	ctx.title(`Reconciliation of ${day(run.snapshotDate)}`);
	const top = h('div');
	const found = h('div');
	const kind = select([['', 'All that was found'], ['variance', 'Differences'], ['missing', 'Not listed'], ['unknown', 'Unknown codes'], ['invalid', 'Unusable lines']], '', { 'aria-label': 'Kind' });
	const decide = (verb, title, text, className) => button(title, async () => {
		if (!await confirm(`${title}?`, text, title, className)) return;
		run = await ctx.send('POST', `${path}/${verb}`, {}, `${title}: reconciliation of ${run.snapshotDate}`);
		render();
		say(verb === 'accept' ? 'It is being booked.' : 'It is dropped; nothing was booked.');
		ctx.counted();
	}, className);
	/** All that was found, in files of the server's size put together. */
	async function csv() {
		const parts = [];
		let after = null;
		for (;;) {
			const text = await ctx.client.get(`${path}/variances.csv${query({ after })}`, { accept: 'text/csv', signal: ctx.signal });
			const lines = text.slice(text.indexOf('\n') + 1);
			parts.push(parts.length ? lines : text);
			if (!lines) break;
			// The id ends a line.
			after = lines.trimEnd().slice(-36);
		}
		download(`reconciliation-${run.snapshotDate}.csv`, parts.join(''), 'text/csv');
	}
	function render() {
		const waits = run.state === 'held';
		top.replaceChildren(heading(`Reconciliation of ${day(run.snapshotDate)}`, state(run), run.running ? muted('working') : null, button('Download as CSV', csv)),
			waits ? notice('warn', [h('p.strong', 'It waits for your decision.'), h('p', run.heldReason ?? '')],
				decide('drop', 'Drop it', 'Nothing of it is booked. The next night compares anew.', 'danger'),
				decide('accept', 'Book it', `${count(run.progress.variances, 'SKU')} follow what was counted: ${difference(run) ?? 'no'} units.`, 'main')) : '',
			run.error ? notice('bad', ['It stopped and goes on from there: ', run.error]) : '',
			panel(null, facts([['Compared', count(run.progress.skus, 'SKU')], ['Differ', [number(run.progress.variances), muted(difference(run) ? ` ${difference(run)} units` : '')]],
				['On the books', `${number(run.stockUnits)} units`], ['Booked', [number(run.progress.booked), muted(` +${number(run.unitsUp)} −${number(run.unitsDown)}`)]],
				['Short', run.unitsShort ? `${number(run.unitsShort)} units are promised and not there` : 'none'], ['Not listed', number(run.missing)], ['Unknown codes', number(run.unknown)], ['Unusable lines', number(run.invalid)],
				['Began', time(run.startedAt)], run.finishedAt ? ['Ended', time(run.finishedAt)] : ['Last step', time(run.updatedAt)], run.decidedAt ? ['Decided', time(run.decidedAt)] : null])));
	}
	const load = () => pages(found, ctx, `${path}/variances${query({ kind: ctx.query.get('kind') })}`, (items) => table('What was found', [
		['SKU', (f) => h('span.code', f.code), 'grow'], ['What', (f) => (f.variance === 0 ? badge('agrees') : badge(words(f.kind), f.kind === 'variance' ? 'warn' : 'off'))], ['Account', (f) => f.account],
		['On the books', (f) => f.expected !== null && number(f.expected), 'num'], ['Counted', (f) => f.counted !== null && number(f.counted), 'num'],
		['Difference', (f) => f.variance !== null && h('strong', f.variance > 0 ? `+${number(f.variance)}` : number(f.variance)), 'num'],
		['Booked', (f) => (f.bookedAt ? [number(f.adjusted), f.short ? h('span.mistake', `, short ${number(f.short)}`) : null] : null), 'num'], ['Why', (f) => f.reason],
	], items), nothing('Nothing was found', 'All that was counted agrees.'));
	ctx.at.append(top, filters(ctx, { kind }, load)(kind), found);
	render();
	await load();
	poll(ctx, LOOK_EVERY_MS, async () => {
		if (!['walking', 'measuring', 'booking'].includes(run.state)) return;
		run = await ctx.get(path);
		render();
	});
}
