// Dead letters, grouped by destination and cause: read one, mend the partner, send the group again.
import { ask, button, confirm, count, h, heading, muted, nothing, notice, number, panel, progress, query, rowLink, table, time } from './ui.js';

/** So many are read to be grouped; the rest is named. */
const READ_MOST = 1000;
const PAGE = 200;

/** An error without what differs from event to event: ids, numbers, times. */
export function cause(error) {
	const first = (error ?? 'no error was kept').split('\n')[0];
	// A status is the cause itself.
	const kept = first.replace(/\b[0-9a-f]{8}-[0-9a-f-]{27}\b/gi, '…').replace(/\b(?!\d{3}\b)\d+(?:[.:]\d+)*\b/g, '…');
	return kept.length > 160 ? `${kept.slice(0, 160)} …` : kept;
}

/**
 * Changes events by filter, part by part, until there is no next; `verb` is requeue or discard; `total` is how many are expected,
 * 0 where nobody knows. Returns how many were changed.
 */
export async function byFilter(ctx, verb, filter, total, report, stopped) {
	let done = 0;
	let after = null;
	do {
		const answer = await ctx.send('POST', `/admin/outbox/${verb}`, { ...filter, ...(after ? { after } : {}) }, `${verb} events`);
		done += answer.requeued ?? answer.discarded;
		report(Math.min(done, total), total, total ? `${number(done)} of ${number(Math.max(done, total))}` : `${number(done)} so far …`);
		after = answer.next;
	} while (after && !stopped());
	return done;
}

export async function show(ctx) {
	ctx.title('Dead letters');
	const place = h('div');
	const only = ctx.query.get('destination');
	async function load() {
		const dead = [];
		let after = null;
		do {
			const page = await ctx.get(`/admin/outbox${query({ state: 'dead', destination: only, limit: PAGE, after })}`);
			dead.push(...page.items);
			after = page.next;
		} while (after && dead.length < READ_MOST);
		const groups = new Map();
		for (const event of dead) {
			const name = JSON.stringify([event.destinationId, cause(event.lastError)]);
			if (!groups.has(name)) groups.set(name, { cause: cause(event.lastError), destinationId: event.destinationId, destinationName: event.destinationName, events: [] });
			groups.get(name).events.push(event);
		}
		const whole = after === null;
		/** Whether these are all dead letters of their destination, so that its filter finds the same. */
		const alone = (group) => whole && dead.filter((e) => e.destinationId === group.destinationId).length === group.events.length;
		const sorted = [...groups.values()].sort((a, b) => b.events.length - a.events.length);
		const shown = sorted.length ? sorted.map((group) => draw(group, alone(group))) : [nothing('No dead letters', 'Every event was delivered, or is still being tried.')];
		place.replaceChildren(...(whole ? [] : await rest(dead)), ...shown);
		ctx.counted();
	}
	/** Where there are more than were read: all of a destination, whatever their causes. */
	async function rest(dead) {
		const { destinations } = await ctx.get('/admin/health');
		return [h('p.muted', `The newest ${number(dead.length)} are shown by their causes; there are more.`),
			...destinations.filter((d) => dead.some((e) => e.destinationId === d.id)).map((d) => {
				const all = { destinationId: d.id, destinationName: d.name, total: d.deadLetters, events: dead };
				return notice('warn', [h('strong', d.name), ` has ${count(d.deadLetters, 'dead letter')}, shown or not.`],
					button('Discard all of them', () => end(all, true), 'quiet'), button(`Send all ${number(d.deadLetters)} again`, () => again(all, true)));
			})];
	}
	function draw(group, alone) {
		const types = new Map();
		for (const event of group.events) types.set(event.type, (types.get(event.type) ?? 0) + 1);
		const list = h('div');
		const more = button('Show them', () => {
			list.replaceChildren(table('Dead letters', [['Event', (e) => rowLink(`#/event/${e.id}`, e.type), 'grow'], ['Attempts', (e) => number(e.attemptCount), 'num'],
				['Written', (e) => time(e.createdAt)], ['Given up', (e) => time(e.deadLetteredAt)]], group.events.slice(0, 100)));
			more.remove();
		}, 'quiet');
		return panel(null, h('div.group-head', h('div', h('h2', group.destinationName ?? 'A deleted destination'), h('pre.bad.cause', { tabIndex: 0 }, group.cause),
			muted(`${count(group.events.length, 'event')}: ${[...types].map(([type, n]) => `${n} ${type}`).join(', ')}. The last one was given up `, time(group.events.map((e) => e.deadLetteredAt).sort().at(-1)), '.')),
		h('div.actions', more, button('Discard all', () => end(group, alone), 'quiet'), group.destinationName && button(`Send ${number(group.events.length)} again`, () => again(group, alone), 'main'))), list);
	}
	async function oneByOne(group, verb, body, report, stopped) {
		let done = 0;
		for (const event of group.events) {
			if (stopped()) break;
			try {
				await ctx.send('POST', `/admin/outbox/${event.id}/${verb}`, body, `${verb} event ${event.id}`);
				done += 1;
			// Somebody else was quicker.
			} catch (error) { if (error.code !== 'outbox_state') throw error; }
			report(done, group.events.length, `${number(done)} of ${number(group.events.length)}`);
		}
		return done;
	}
	const filterOf = (group) => ({ state: 'dead', destination: group.destinationId, to: new Date(Date.parse(group.events[0].createdAt) + 1000).toISOString() });
	const totalOf = (group) => group.total ?? group.events.length;
	async function again(group, alone) {
		if (!await confirm('Send them again?', `${count(totalOf(group), 'event')} to ${group.destinationName}. Has the cause been mended? Each gets all its attempts anew, under its old id.`, 'Send again')) return;
		await progress('Sending again', async (report, stopped) => {
			const done = alone ? await byFilter(ctx, 'requeue', filterOf(group), totalOf(group), report, stopped) : await oneByOne(group, 'requeue', {}, report, stopped);
			return `${count(done, 'event is', 'events are')} pending again.`;
		});
		await load();
	}
	async function end(group, alone) {
		const reason = await ask('Discard them', `Why? ${count(totalOf(group), 'event')} to ${group.destinationName ?? 'a deleted destination'} will never be delivered.`, 'Discard all', 'danger');
		if (!reason) return;
		await progress('Discarding', async (report, stopped) => {
			const done = alone ? await byFilter(ctx, 'discard', { ...filterOf(group), reason }, totalOf(group), report, stopped) : await oneByOne(group, 'discard', { reason }, report, stopped);
			return `${count(done, 'event is', 'events are')} discarded.`;
		});
		await load();
	}
	ctx.at.append(heading('Dead letters', only ? button('All destinations', () => ctx.go('#/dead-letters')) : null, button('Look again', load)), place);
	await load();
}
