// The outbox: events and where they are; one with its attempts, its history and the very document that is sent.
import { byFilter } from './dead-letters.js';
import { ask, badge, button, confirm, count, facts, filters, h, heading, link, muted, nothing, number, pages, panel, progress, query, rowLink, say, select, table, time, words } from './ui.js';

/** The thing that an event is of, and where it is seen. */
const SEEN = { wholesale_order: 'order', invoice: 'invoice', customer: 'customer' };
const about = ({ type, id }) => (SEEN[type] ? link(`#/${SEEN[type]}/${id}`, `${words(type)} ${id}`) : `${words(type)} ${id}`);
const iso = (local) => (local ? new Date(local).toISOString() : '');

export async function list(ctx) {
	ctx.title('Events');
	const state = select([['', 'Any state'], ['pending', 'Pending'], ['delivered', 'Delivered'], ['dead', 'Dead'], ['discarded', 'Discarded']], '', { 'aria-label': 'State' });
	const destinations = (await ctx.get('/admin/destinations?limit=200')).items;
	const destination = select([['', 'Any destination'], ...destinations.map((d) => [d.id, d.name])], '', { 'aria-label': 'Destination' });
	const type = h('input', { type: 'search', placeholder: 'Type, such as sku.ats_changed', 'aria-label': 'Type', 'data-search': '', pattern: '[A-Za-z0-9._]*' });
	const from = h('input', { type: 'datetime-local', 'aria-label': 'Written from' });
	const to = h('input', { type: 'datetime-local', 'aria-label': 'Written before' });
	const place = h('div');
	const chosen = () => ({ state: ctx.query.get('state'), destination: ctx.query.get('destination'), type: ctx.query.get('type'), from: iso(ctx.query.get('from')), to: iso(ctx.query.get('to')) });
	const many = h('div.actions');
	/** What the filter finds, all of it, also what is not shown. */
	async function all(verb, more, said) {
		const filter = Object.fromEntries(Object.entries(chosen()).filter(([, value]) => value));
		await progress(verb === 'requeue' ? 'Sending again' : 'Discarding', async (report, stopped) => `${count(await byFilter(ctx, verb, { ...filter, ...more }, 0, report, stopped), 'event is', 'events are')} ${said}.`);
		await load();
		ctx.counted();
	}
	const again = button('Send all of these again', async () => { if (await confirm('Send them again?', 'All that the filter finds, also what is not shown here. Each keeps its id, so whoever knows it already can tell.', 'Send again')) await all('requeue', {}, 'pending again'); });
	const end = button('Discard all of these', async () => {
		const reason = await ask('Discard them', 'Why? All that the filter finds, also what is not shown here, is never delivered.', 'Discard all', 'danger');
		if (reason) await all('discard', { reason }, 'discarded');
	}, 'quiet');
	const load = () => {
		const of = ctx.query.get('state');
		many.replaceChildren(...(['dead', 'pending'].includes(of) ? [end] : []), ...(['dead', 'delivered'].includes(of) ? [again] : []));
		return found();
	};
	const found = () => pages(place, ctx, `/admin/outbox${query(chosen())}`,
		(events) => table('Events', [
			['Event', (e) => rowLink(`#/event/${e.id}`, e.type), 'grow'],
			['State', (e) => badge(e.state)],
			['To', (e) => e.destinationName ?? muted(e.destinationId ? 'deleted' : 'nobody')],
			['Attempts', (e) => number(e.attemptCount), 'num'],
			['Written', (e) => time(e.createdAt)],
			['Next try', (e) => (e.state === 'pending' ? (e.nextAttemptAt ? time(e.nextAttemptAt) : muted('behind another')) : null)],
			['Last error', (e) => e.lastError && h('div.clip', { title: e.lastError }, e.lastError)],
		], events), nothing('No event fits', 'What changes is written here as an event for each destination.'));
	ctx.at.append(heading('Events', many), filters(ctx, { state, destination, type, from, to }, load)(state, destination, type, h('label.muted', 'from ', from), h('label.muted', 'to ', to)), place);
	await load();
}

export async function show(ctx) {
	const path = `/admin/outbox/${ctx.parameter}`;
	ctx.title(`Event ${ctx.parameter}`);
	async function render() {
		const e = await ctx.get(path);
		ctx.at.replaceChildren(heading(e.type, badge(e.state),
			e.destinationName && ['dead', 'delivered'].includes(e.state) ? button('Send again', async () => {
				await ctx.send('POST', `${path}/requeue`, {}, `Send event ${e.id} again`);
				say('It is pending again.');
				await render();
				ctx.counted();
			}, 'main') : null,
			['dead', 'pending'].includes(e.state) ? button('Discard', async () => {
				const reason = await ask('Discard the event', 'Why? It is never delivered then.', 'Discard it', 'danger');
				if (!reason) return;
				await ctx.send('POST', `${path}/discard`, { reason }, `Discard event ${e.id}`);
				say('It is discarded.');
				await render();
				ctx.counted();
			}, 'quiet') : null),
		panel(null, facts([['To', e.destinationId ? link(`#/events?destination=${e.destinationId}`, e.destinationName ?? 'a deleted destination') : 'nobody subscribes'],
			['About', about(e.aggregate)], ['Sequence', number(e.aggregate.sequence)],
			['Written', time(e.createdAt)], ['Attempts', number(e.attemptCount)],
			e.state === 'pending' ? ['Next try', e.nextAttemptAt ? time(e.nextAttemptAt) : 'when the one before it is out'] : null,
			e.deliveredAt ? ['Delivered', time(e.deliveredAt)] : null, e.deadLetteredAt ? ['Given up', time(e.deadLetteredAt)] : null,
			e.discardReason ? ['Discarded because', e.discardReason] : null, e.requeues ? ['Sent again by people', number(e.requeues)] : null])),
		e.lastError ? panel('Last error', h('pre.bad', { tabIndex: 0 }, e.lastError)) : '',
		e.attempts.length ? panel('Attempts', table('Attempts', [['When', (a) => time(a.at)], ['Status', (a) => a.status ?? muted('no answer')],
			['Took', (a) => a.ms !== undefined && a.ms !== null && `${number(a.ms)} ms`, 'num'], ['What was said', (a) => a.said && h('span.said', a.said), 'grow']], e.attempts)) : '',
		panel('Document', h('pre', { tabIndex: 0 }, JSON.stringify(e.payload, null, 2))),
		e.history?.length ? panel('What people did', table('What people did', [['When', (x) => time(x.at)], ['Who', (x) => x.byName ?? x.by], ['What', (x) => words(x.action)], ['Why', (x) => x.reason, 'grow']], e.history)) : '');
	}
	await render();
}
