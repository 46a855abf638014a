// Units that are promised and not there, until somebody settles them or new stock covers them.
import { ask, badge, button, filters, h, heading, link, muted, nothing, number, pages, query, say, select, table, time, words } from './ui.js';

export async function list(ctx) {
	ctx.title('Shortfalls');
	const state = select([['open', 'Open'], ['settled', 'Settled'], ['', 'All']], 'open', { 'aria-label': 'State' });
	if (!ctx.query.has('state')) ctx.query.set('state', 'open');
	const place = h('div');
	const load = () => pages(place, ctx, `/admin/shortfalls${query({ state: ctx.query.get('state') })}`, (items) => table('Shortfalls', [
		['SKU', (s) => link(`#/stock?q=${encodeURIComponent(s.code)}`, s.code, 'code row')],
		['Units', (s) => h('strong', { class: s.settledAt ? '' : 'mistake' }, number(s.qty)), 'num'],
		['Cause', (s) => words(s.cause.replace('.', ' ')), 'grow'],
		['Not booked yet', (s) => (s.unbooked ? number(s.unbooked) : null), 'num'],
		['Since', (s) => time(s.openedAt)],
		['Settled', (s) => (s.settledAt ? [badge('settled', 'ok'), ' ', time(s.settledAt), s.note ? h('div.muted.small', s.note) : null] : null)],
		['', (s) => (s.settledAt ? '' : button('Settle', async () => {
			const note = await ask(`Settle ${number(s.qty)} × ${s.code}`, 'How was it settled?', 'Settle');
			if (!note) return;
			await ctx.send('POST', `/admin/shortfalls/${s.id}/settle`, { note }, `Settle ${s.code}`);
			say('Settled.');
			await load();
			ctx.counted();
		}, 'small')), 'act'],
	], items), nothing(ctx.query.get('state') === 'open' ? 'No shortfalls' : 'No shortfall fits', 'All that is promised is there or on its way.', muted('')));
	ctx.at.append(heading('Shortfalls'), filters(ctx, { state }, load)(state), place);
	await load();
}
