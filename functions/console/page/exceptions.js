// Signed events of others that could not be processed: why, what would mend it, the body as it came.
import { ask, badge, button, confirm, count, filters, h, heading, muted, nothing, number, pages, progress, query, say, select, time } from './ui.js';

/** What would mend it, by what the reason says. */
const MENDS = [
	[/unknown sku|no sku|sku .* (is not|unknown)/i, 'Create the SKU under this code (holdfast admin import), then try again.'],
	[/unknown invoice|no invoice/i, 'The payment names an invoice that is not here. Book it by hand on the right invoice, then dismiss this.'],
	[/unknown shop|shop/i, 'Register the shop (holdfast admin shop), then try again.'],
	[/asn/i, 'It names an ASN that has not come yet, or differs from it.'],
	[/amount|currency|more than/i, 'Compare with the payment at Stripe, and book or refund the difference.'],
	[/order/i, 'Look at the order, mend what differs, then try again.'],
];
const mend = (x) => (MENDS.find(([said]) => said.test(x.reason))?.[1] ?? 'Read the body, mend what it names, then try again.') + (x.waitsFor ? ' It is also tried again by itself when what it waits for has come.' : '');

export async function list(ctx) {
	ctx.title('Exceptions');
	const state = select([['open', 'Open'], ['resolved', 'Ended'], ['', 'All']], 'open', { 'aria-label': 'State' });
	const tenant = ctx.may('platform:admin') ? select([['', 'Of this tenant'], ['none', 'Of no tenant']], '', { 'aria-label': 'Tenant' }) : null;
	// Nothing else is theirs to see.
	if (tenant && !ctx.may('outbox:admin')) ctx.query.set('tenant', 'none');
	if (!ctx.query.has('state')) ctx.query.set('state', 'open');
	const place = h('div');
	const load = () => pages(place, ctx, `/admin/exceptions${query({ state: ctx.query.get('state'), tenant: ctx.query.get('tenant') })}`,
		(items) => { const all = h('div.cards', items.map(card)); all.add = (more) => all.append(...more.map(card)); return all; },
		nothing(ctx.query.get('state') === 'open' ? 'Nothing waits here' : 'No exception fits', 'What Stripe, Shopify and the 3PL send was processed.'));
	async function reload() { await load(); ctx.counted(); }
	/** All open ones, part by part until there is no next. done(answer) → how many. */
	function all(title, verb, body, done, said) {
		return progress(title, async (report, stopped) => {
			let sum = 0;
			let after = null;
			do {
				const answer = await ctx.send('POST', `/admin/exceptions/${verb}`, { ...body, ...(after ? { after } : {}) }, title);
				sum += done(answer);
				report(0, 0, `${number(sum)} so far …`);
				after = answer.next;
			} while (after && !stopped());
			return said(sum);
		}).then(reload);
	}
	const many = ctx.may('outbox:admin') ? [
		button('Dismiss all', async () => {
			const reason = await ask('Dismiss all open exceptions', 'What was done about them? They are not processed.', 'Dismiss all', 'danger');
			if (reason) await all('Dismissing', 'dismiss', { reason }, (a) => a.dismissed, (n) => `${count(n, 'exception is', 'exceptions are')} dismissed.`);
		}, 'quiet'),
		button('Try all again', async () => {
			if (await confirm('Try all again?', 'What can be processed now is; the others stay. Nothing is done twice.', 'Try all again')) await all('Trying again', 'retry', {}, (a) => a.resolved, (n) => `${count(n, 'exception is', 'exceptions are')} processed.`);
		})] : [];
	function card(x) {
		const open = !x.resolvedAt && ctx.query.get('tenant') !== 'none';
		return h('article.panel', h('div.group-head', h('div', {},
			h('h2', `${x.topic ?? 'event'} from ${x.provider}`), h('p', { class: open ? 'mistake' : 'muted' }, x.reason),
			open ? h('p', mend(x)) : null,
			muted(`Event ${x.eventId}, received `, time(x.receivedAt), x.attempts > 1 ? `, tried ${number(x.attempts)} times, last ` : '', x.attempts > 1 ? time(x.lastTriedAt) : '', x.waitsFor ? `, waits for ${x.waitsFor}` : '', x.resolvedAt ? ', ended ' : '', x.resolvedAt ? time(x.resolvedAt) : '', x.dismissReason ? `: ${x.dismissReason}` : '')),
		h('div.actions', !x.resolvedAt ? null : x.dismissReason ? badge('dismissed') : badge('processed', 'ok'),
			open ? button('Dismiss', async () => {
				const reason = await ask('Dismiss it', 'What was done about it? It is not processed.', 'Dismiss', 'danger');
				if (!reason) return;
				await ctx.send('POST', `/admin/exceptions/${x.id}/dismiss`, { reason }, `Dismiss event ${x.eventId}`);
				say('Dismissed.');
				await reload();
			}, 'quiet') : null,
			open ? button('Try again', async () => {
				const done = await ctx.send('POST', `/admin/exceptions/${x.id}/retry`, {}, `Retry event ${x.eventId}`);
				await reload();
				if (done.resolvedAt) say('Processed.'); else throw new Error(`It is still not possible: ${done.reason}`);
			}, 'main') : null)),
		x.excerpt ? h('details', h('summary', `The body as it came${x.sizeBytes ? `, ${number(x.sizeBytes)} bytes` : ''}`), h('pre', { tabIndex: 0 }, pretty(x.excerpt))) : null);
	}
	ctx.at.append(heading('Exceptions', many), filters(ctx, { state, ...(tenant ? { tenant } : {}) }, load)(state, tenant), place);
	await load();
}
function pretty(text) {
	try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
