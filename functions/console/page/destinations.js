// Who is told of what: a form for each kind, the secret, a test with its result on the spot.
import { ask, badge, button, buttons, confirm, copyable, count, dialog, duration, endings, field, h, heading, link, muted, nothing, number, pages, run, say, time, words } from './ui.js';

const TYPES = ['order.created', 'order.saved', 'order.cancelled', 'order.shipped', 'order.line_allocated', 'order.line_released', 'style.saved', 'sku.ats_changed', 'customer.saved', 'customer.over_limit',
	'invoice.created', 'invoice.paid', 'invoice.reopened', 'invoice.refunded', 'invoice.voided', 'inventory.shortfall', 'inbox.exception', 'destination.disabled', 'destination.recovered'];
/** kind → what a person must know, and which fields its form has. */
const KINDS = {
	webhook: { title: 'Webhook', says: 'Every event as signed JSON, for an EDI gateway or a partner.', url: 'https://partner.example/events', ordered: true, all: true },
	shopify_inventory: { title: 'Shopify inventory', says: 'What is left to sell of each SKU is set in a shop.', url: 'https://shop.myshopify.com/admin/api/2026-04/graphql.json', token: true, types: ['sku.ats_changed'] },
	eventbridge: { title: 'EventBridge', says: 'Every event on a bus that the operator has allowed.', url: 'arn:aws:events:eu-west-1:123456789012:event-bus/name', all: true },
	sqs: { title: 'SQS', says: 'Every event on a queue that the operator has allowed; in order on a FIFO queue.', url: 'https://sqs.eu-west-1.amazonaws.com/123456789012/name', ordered: true, all: true },
	email: { title: 'Email', says: 'A confirmation to whoever made the order, for each commitment.', url: 'mailto:orders@example.com', urlOptional: true, types: ['order.line_allocated'] },
};
const TEST_WITHIN_MS = 90_000;

function form(kind, start) {
	const about = KINDS[kind] ?? { title: words(kind), says: '', all: true };
	const name = h('input', { required: true, maxlength: 200, value: start?.name ?? '', autofocus: true });
	const url = h('input', { inputmode: 'url', required: !about.urlOptional, maxlength: 2048, value: start?.url ?? '', placeholder: about.url, spellcheck: 'false' });
	const all = h('input', { type: 'checkbox', checked: !start || start.eventTypes.includes('*') });
	const types = TYPES.map((type) => [type, h('input', { type: 'checkbox', checked: start ? start.eventTypes.includes(type) : false })]);
	const list = h('div.types', { hidden: all.checked }, types.map(([type, box]) => h('label.check', box, type)));
	all.addEventListener('change', () => { list.hidden = all.checked; });
	const ordered = h('input', { type: 'checkbox', checked: start?.ordered ?? false });
	const attempts = h('input', { type: 'number', min: 1, max: 100, value: start?.maxAttempts ?? 12, required: true });
	const rate = h('input', { type: 'number', min: 1, max: 1000, value: start?.maxPerSecond ?? '' });
	const token = h('input', { type: 'password', maxlength: 500, required: about.token && !start });
	const location = h('input', { maxlength: 255, value: start?.locationId ?? '' });
	return {
		content: [h('p.muted', about.says), field('Name', name), field('Address', url, about.urlOptional ? { hint: 'The sender; may be left out.' } : {}),
			about.types ? null : h('fieldset', h('legend', 'Events'), h('label.check', all, 'All events'), list),
			about.ordered ? h('label.check', ordered, 'In order: the events of one thing one after the other') : null,
			about.token ? [field('Access token of the shop', token, { hint: start ? 'Empty keeps the one it has.' : 'No answer ever holds it.' }), field('Location', location, { hint: 'Empty is the primary one.' })] : null,
			h('div.two', field('Attempts before giving up', attempts, { hint: '12 take an hour and a half, 40 about 29 hours, 84 about 73. An outage uses none once nothing has got through for a quarter of an hour.' }), field('Most per second', rate, { hint: 'Empty is no limit.' }))],
		read() {
			const body = { name: name.value.trim(), eventTypes: about.types ?? (all.checked ? ['*'] : types.filter(([, box]) => box.checked).map(([type]) => type)), maxAttempts: Number(attempts.value), maxPerSecond: rate.value === '' ? null : Number(rate.value) };
			if (url.value.trim()) body.url = url.value.trim();
			if (about.ordered) body.ordered = ordered.checked;
			if (about.token && token.value) body.accessToken = token.value;
			if (about.token) body.locationId = location.value.trim() || null;
			return body;
		},
		mistakes(error) {
			for (const { path, message } of error.problem?.errors ?? []) ({ '/name': name, '/url': url, '/maxAttempts': attempts, '/maxPerSecond': rate, '/accessToken': token, '/locationId': location })[path]?.mistake(message);
		},
	};
}

export async function list(ctx) {
	ctx.title('Destinations');
	const place = h('div');
	const { client } = ctx;
	const load = () => pages(place, ctx, '/admin/destinations', (items) => { const all = h('div.cards', items.map(card)); all.add = (more) => all.append(...more.map(card)); return all; },
		nothing('No destinations yet', 'A destination is told of what happens: a partner, a shop, an account manager.'));
	async function changed(text) { say(text); await load(); ctx.counted(); }

	/** A dialog with the form of this kind; sends until it is taken or given up. */
	function edit(title, kind, start, send) {
		return dialog(title, (close) => {
			const made = form(kind, start);
			const save = h('button.main', start ? 'Save' : 'Set it up');
			return h('form.form', { onsubmit: (event) => {
				event.preventDefault();
				run(save, async () => { try { close(await send(made.read())); } catch (error) { made.mistakes(error); throw error; } });
			} }, made.content, endings(close, save));
		}, 'wide');
	}
	async function create() {
		const kind = await dialog('A new destination', (close) => [h('div.kinds', Object.entries(KINDS).map(([name, about]) => h('button', { type: 'button', class: 'kind', onclick: () => close(name) }, h('span.strong', about.title), muted(about.says)))),
			buttons(button('Cancel', () => close(undefined)))]);
		if (!kind) return;
		const made = await edit(`A new destination: ${KINDS[kind].title}`, kind, null, (body) => ctx.send('POST', '/admin/destinations', { kind, ...body }, `Set up ${body.name}`));
		if (!made) return;
		await changed(`${made.name} is set up.`);
		if (kind === 'webhook') await secret(made, true);
	}
	async function secret(d, first) {
		const told = await client.get(`/admin/destinations/${d.id}/secret`);
		await dialog(first ? `${d.name} is set up` : `Signing secret of ${d.name}`, (close) => [
			h('p', first ? 'Give this secret to the partner: it proves that an event is from here. ' : '', 'Whoever has it can sign events. That you have seen it is recorded.'),
			copyable(told.secret, 'The secret'), told.secrets.length > 1 ? h('p.muted', `${told.secrets.length} secrets sign at present; the older ones until `, time(told.secrets.at(-1).retiresAt), '.') : null,
			buttons(first ? button('Send a test event', () => { close(true); run(null, () => test(d)); }) : null, button('Close', () => close(true), 'main'))]);
	}
	async function rotate(d) {
		const how = await dialog(`A new secret for ${d.name}`, (close) => [h('p', 'The present one goes on signing beside the new one for a while, so that the partner can change over. At once: where it has become known.'),
			endings(close, button('At once', () => close('now'), 'danger'), button('With an overlap', () => close('later'), 'main'))]);
		if (!how) return;
		await ctx.send('POST', `/admin/destinations/${d.id}/rotate`, how === 'now' ? { immediate: true } : {}, `A new secret for ${d.name}`);
		await secret(d, false);
	}
	function test(d) {
		return dialog(`Test of ${d.name}`, (close) => {
			const said = h('div', { role: 'status' }, 'Sending …');
			const begun = Date.now();
			(async () => {
				const sent = await ctx.send('POST', `/admin/destinations/${d.id}/test`, {}, `Test ${d.name}`);
				for (;;) {
					const event = await client.get(`/admin/outbox/${sent.outboxId}`, { signal: ctx.signal });
					const last = event.attempts.at(-1);
					const took = duration((Date.now() - begun) / 1000);
					if (event.state === 'delivered') { said.replaceChildren(badge('delivered'), ` after ${took}`, last?.status ? `, answered ${last.status} in ${number(last.ms)} ms` : '', '. ', link(`#/event/${sent.outboxId}`, 'Look at the event')); return; }
					if (event.lastError) { said.replaceChildren(badge('failed', 'bad'), ' It is tried again by itself. ', h('pre.bad', { tabIndex: 0 }, event.lastError), link(`#/event/${sent.outboxId}`, 'Look at the event')); return; }
					if (Date.now() - begun > TEST_WITHIN_MS || !said.isConnected) { said.append(h('p', `It has not been tried after ${took}: is the relay running? `, link(`#/event/${sent.outboxId}`, 'Look at the event'))); return; }
					await new Promise((resolve) => setTimeout(resolve, 1000));
				}
			})().catch((error) => { said.replaceChildren(h('p.mistake', error.message)); });
			return [said, buttons(button('Close', () => close(true), 'main'))];
		});
	}
	const set = (d, state, text, className) => button(text, async () => {
		if (state === 'disabled' && !await confirm(`Disable ${d.name}?`, 'Its events wait until it is active again; the others are told.', 'Disable', 'danger')) return;
		await ctx.send('PATCH', `/admin/destinations/${d.id}`, { state }, `${text} ${d.name}`);
		await changed(`${d.name} is ${state}.`);
	}, className);
	async function remove(d) {
		const reason = await ask(`Delete ${d.name}`, 'Why? What still waits for it is discarded.', 'Delete it', 'danger');
		if (!reason) return;
		const gone = await ctx.send('DELETE', `/admin/destinations/${d.id}`, { reason }, `Delete ${d.name}`);
		await changed(`${d.name} is deleted; ${count(gone.discarded, 'event')} that waited ${gone.discarded === 1 ? 'is' : 'are'} discarded${gone.more ? ', and the rest is within seconds' : ''}.`);
	}
	function card(d) {
		return h('article.panel', h('div.group-head', h('div', {},
			h('h2', d.name, ' ', badge(d.state)), h('p', KINDS[d.kind]?.title ?? words(d.kind), ': ', h('code', d.url)),
			muted(d.eventTypes.includes('*') ? 'All events' : d.eventTypes.length > 4 ? count(d.eventTypes.length, 'event type') : d.eventTypes.join(', '), d.customerId ? ', of one customer' : '', d.ordered ? ', in order' : '', `, ${count(d.maxAttempts, 'attempt')}`, d.maxPerSecond ? `, at most ${d.maxPerSecond} per second` : '', ', since ', time(d.createdAt)),
			d.apiVersion?.endsSoon ? h('p.mistake', `Version ${d.apiVersion.version} of the shop's API ends on ${d.apiVersion.endsOn}: give it the address of a later one.`) : null),
		h('div.actions',
			button('Test', () => test(d), 'small'),
			button('Edit', async () => { const done = await edit(`Edit ${d.name}`, d.kind, d, (body) => ctx.send('PATCH', `/admin/destinations/${d.id}`, body, `Save ${d.name}`)); if (done) await changed('Saved.'); }, 'small'),
			d.kind === 'webhook' ? [button('Secret', async () => { if (await confirm('Show the secret again?', 'It was shown when it was made. That you look at it is recorded.', 'Show it')) await secret(d, false); }, 'small'), button('Rotate', () => rotate(d), 'small')] : null,
			d.state === 'active' ? set(d, 'paused', 'Pause', 'small') : set(d, 'active', 'Activate', 'small main'),
			d.state === 'disabled' ? null : set(d, 'disabled', 'Disable', 'small quiet'), button('Delete', () => remove(d), 'small quiet'))));
	}
	ctx.at.append(heading('Destinations', button('New destination', create, 'main')), place);
	await load();
}
