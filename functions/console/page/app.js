// The frame: who is signed in, the side bar, addresses, keys. Each view is a module that is loaded when it is first opened.
import { createClient } from './client.js';
import { h, ago, button, buttons, count, dialog, hush, notice, number, problem, run, say, tell } from './ui.js';
import { endsInMs, endsSoon, finishSignIn, may, probe, renew, signInPage, signOut, token, who } from './session.js';

/** name, title, key after `g`, module, function, scope, what it counts. The parameter of an address follows its name. */
const VIEWS = [
	['orders', 'Orders', 'o', './orders.js', 'list', 'orders:read'],
	['order', null, null, './order.js', 'show', 'orders:read'],
	['new-order', null, null, './new-order.js', 'show', 'orders:write'],
	['customers', 'Customers', 'c', './customers.js', 'list', 'orders:read'],
	['customer', null, null, './customers.js', 'show', 'orders:read'],
	['stock', 'Stock', 's', './stock.js', 'list', 'orders:read'],
	['invoices', 'Invoices', 'i', './invoices.js', 'list', 'orders:read'],
	['invoice', null, null, './invoices.js', 'show', 'orders:read'],
	['overview', 'Overview', 'v', './overview.js', 'show', 'outbox:admin'],
	['events', 'Events', 'e', './events.js', 'list', 'outbox:admin'],
	['event', null, null, './events.js', 'show', 'outbox:admin'],
	['dead-letters', 'Dead letters', 'd', './dead-letters.js', 'show', 'outbox:admin', 'deadLetters'],
	['exceptions', 'Exceptions', 'x', './exceptions.js', 'list', 'outbox:admin platform:admin', 'exceptions'],
	['shortfalls', 'Shortfalls', 'f', './shortfalls.js', 'list', 'outbox:admin', 'shortfalls'],
	['reconcile', 'Reconcile', 'r', './reconcile.js', 'list', 'outbox:admin', 'held'],
	['reconciliation', null, null, './reconcile.js', 'show', 'outbox:admin'],
	['destinations', 'Destinations', 'n', './destinations.js', 'list', 'outbox:admin', 'destinations'],
];
const GROUPS = [['Selling', ['orders', 'customers', 'stock', 'invoices']],
	['Operating', ['overview', 'events', 'dead-letters', 'exceptions', 'shortfalls', 'reconcile', 'destinations']]];
const PARENTS = { order: 'orders', 'new-order': 'orders', customer: 'customers', invoice: 'invoices', event: 'events', reconciliation: 'reconcile' };
const COUNT_EVERY_MS = 30_000;

/** Whether one of these scopes is there. */
const mayAny = (scopes) => scopes.split(' ').some(may);

const base = new URL('.', location.href);
const waiting = h('div', { id: 'waiting', role: 'status' });
export const client = createClient({
	base, token, renew, storage: sessionStorage,
	onWait: ({ why, ms }) => {
		const text = why === 'offline' ? 'You are offline. It goes on by itself when you are back.'
			: why === 'busy' ? 'The server is busy; nothing was changed.' : why === 'running' ? 'Still running.' : 'No answer yet.';
		waiting.textContent = why === 'offline' ? text : `${text} Asking again in ${Math.max(1, Math.round(ms / 1000))} s …`;
		clearTimeout(waiting.timer);
		if (why !== 'offline') waiting.timer = setTimeout(() => { waiting.textContent = ''; }, ms + 1500);
	},
});
globalThis.addEventListener('online', () => { waiting.textContent = ''; });

let leaving = new AbortController();
let main = h('main');
const notices = h('div', { id: 'notices' });

const href = (name, parameter) => `#/${name}${parameter ? `/${parameter}` : ''}`;
function address() {
	const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
	const [name, parameter] = path.split('/').map(decodeURIComponent);
	return { name: name || (may('orders:read') ? 'orders' : may('outbox:admin') ? 'overview' : 'exceptions'), parameter, query: new URLSearchParams(query) };
}

async function open() {
	const { name, parameter, query } = address();
	const view = VIEWS.find(([known]) => known === name);
	leaving.abort();
	leaving = new AbortController();
	const { signal } = leaving;
	hush();
	document.getElementById('side')?.removeAttribute('data-open');
	for (const shown of document.querySelectorAll('#side a')) {
		if (shown.dataset.view === (PARENTS[name] ?? name)) shown.setAttribute('aria-current', 'page'); else shown.removeAttribute('aria-current');
	}
	const at = h('div', { class: `view ${name}` });
	const ctx = {
		client, at, parameter, query, signal, may,
		get: (path) => client.get(path, { signal }),
		send: (method, path, body, label) => client.send(method, path, body, { label }),
		title: (text) => { document.title = `${text} · Holdfast`; },
		/** Changes the address without leaving the view. */
		setQuery: (values) => {
			const text = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
			history.replaceState(null, '', `${href(name, parameter)}${text ? `?${text}` : ''}`);
			ctx.query = new URLSearchParams(text);
		},
		go: (to) => { if (location.hash === to) open(); else location.hash = to; },
		again: open, counted: countAll,
	};
	if (!view) { main.replaceChildren(problem({ status: 404, message: 'This address names no view.' }, () => ctx.go('#/orders'))); return; }
	// Nothing flickers for an answer that comes at once.
	const slow = setTimeout(() => { if (!signal.aborted) main.replaceChildren(h('div.loading', { role: 'status' }, 'Loading …')); }, 200);
	try {
		const module = await import(view[3]);
		await module[view[4]](ctx);
		if (signal.aborted) return;
		main.replaceChildren(at);
		// Whoever uses keys or a screen reader is where the view begins.
		if (!at.contains(document.activeElement)) at.querySelector('h1')?.focus({ preventScroll: true });
		scrollTo(0, 0);
	} catch (error) {
		if (!signal.aborted && error.name !== 'AbortError') main.replaceChildren(problem(error, open));
	} finally { clearTimeout(slow); }
}

// ── Side bar
function sideBar() {
	const entry = (name) => {
		const [, title, key, , , scope, counts] = VIEWS.find(([known]) => known === name);
		if (!mayAny(scope)) return null;
		return h('a', { href: href(name), 'data-view': name, title: `g ${key}` }, h('span', title), counts ? h('span.count', { 'data-count': counts }) : null);
	};
	const groups = GROUPS.map(([title, names]) => { const entries = names.map(entry).filter(Boolean); return entries.length ? [h('p.group', title), entries] : null; });
	const side = h('div', { id: 'side' },
		h('div.brand', h('a', { href: '#/', class: 'name' }, 'Holdfast'),
			h('button', { type: 'button', class: 'quiet menu', 'aria-expanded': 'false', 'aria-controls': 'nav', onclick: (event) => {
				const shown = side.toggleAttribute('data-open');
				event.currentTarget.setAttribute('aria-expanded', String(shown));
			} }, 'Menu')),
		h('nav', { id: 'nav', 'aria-label': 'Sections' }, groups,
			h('div.foot', h('span.muted', { title: who() }, who()), button('Keys', help, 'quiet'), button('Sign out', leave, 'quiet'))));
	return side;
}
async function countAll() {
	if (!token() || document.hidden || !may('outbox:admin')) return;
	let counted;
	try { counted = await client.get('/admin/attention'); } catch { return; }
	for (const shown of document.querySelectorAll('[data-count]')) {
		const n = counted[shown.dataset.count] ?? 0;
		shown.textContent = n ? (n > counted.most ? `${number(counted.most)}+` : number(n)) : '';
		shown.title = n ? `${shown.textContent} need a person` : '';
	}
}

// ── What is told on every view
/** Requests from before a reload whose answer nobody has seen. */
function unanswered() {
	return client.unanswered().map((intention) => {
		const bar = notice('warn', [h('strong', 'No answer was seen. '), `${intention.label ?? `${intention.method} ${intention.path}`}, sent `, ago(intention.at), '.'],
			button('Find out', async () => {
				try { await client.resume(intention); bar.remove(); await open(); say('It is done, once.'); } catch (error) {
					if (error.name === 'Refusal') bar.remove();
					throw error;
				}
			}), button('Forget it', () => { client.abandon(intention); bar.remove(); }, 'quiet'));
		return bar;
	});
}
function watchSession() {
	let asked = false;
	setInterval(() => {
		if (!token()) return;
		if (!endsSoon()) { asked = false; return; }
		if (asked) return;
		asked = true;
		const minutes = Math.max(0, Math.ceil(endsInMs() / 60000));
		const bar = notice('warn', minutes ? `Your sign-in ends in ${count(minutes, 'minute')}.` : 'Your sign-in has ended.',
			button('Sign in again', async () => { if (await renew()) bar.remove(); }));
		notices.append(bar);
	}, 1000);
}
function leave() {
	client.abandonAll();
	for (const name of Object.keys(sessionStorage)) if (name.startsWith('holdfast.draft.')) sessionStorage.removeItem(name);
	signOut();
	leaving.abort();
	start();
}

// ── Keys
function help() {
	const rows = [['/', 'Search'], ['n', 'New order'], ['j, k', 'Next and previous row'], ['Enter', 'Open the row'], ['?', 'These keys'],
		...VIEWS.filter(([, title, , , , scope]) => title && mayAny(scope)).map(([, title, key]) => [`g ${key}`, title])];
	return dialog('Keys', (close) => [h('dl.keys', rows.map(([key, does]) => h('div', h('dt', key.split(' ').map((part) => h('kbd', part))), h('dd', does)))),
		buttons(button('Close', () => close(true), 'main'))]);
}
let went = 0;
document.addEventListener('keydown', (event) => {
	const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? '');
	if (typing && event.key === 'Escape') document.activeElement.blur();
	if (typing || event.ctrlKey || event.metaKey || event.altKey || !token() || document.querySelector('dialog[open]')) return;
	const rows = [...document.querySelectorAll('main a.row')];
	const step = (by) => rows[Math.min(rows.length - 1, Math.max(0, rows.indexOf(document.activeElement) + by))]?.focus();
	const target = Date.now() - went < 1500 && VIEWS.find(([, , key, , , scope]) => key === event.key && mayAny(scope));
	went = 0;
	if (target) location.hash = href(target[0]);
	else if (event.key === 'g') went = Date.now();
	else if (event.key === '/') document.querySelector('[data-search]')?.focus();
	else if (event.key === '?') help();
	else if (event.key === 'n' && may('orders:write')) location.hash = '#/new-order';
	else if (event.key === 'j') step(1);
	else if (event.key === 'k') step(-1);
	else return;
	event.preventDefault();
});

// ── Start
let counting = 0;
async function start(error) {
	clearInterval(counting);
	if (!await probe()) { signOut(); error = 'This token or API key is not known, or was withdrawn.'; }
	for (const old of document.querySelectorAll('body > :not(#said, #alerts, dialog)')) old.remove();
	if (!token() || endsInMs() <= 0) {
		document.title = 'Sign in · Holdfast';
		document.body.prepend(signInPage(error, () => start()));
		document.querySelector('[autofocus]')?.focus();
		return;
	}
	main = h('main', { id: 'main' });
	notices.replaceChildren(...unanswered());
	document.body.prepend(h('a.skip', { href: '#main', onclick: (event) => { event.preventDefault(); main.querySelector('h1')?.focus(); } }, 'Skip to the content'),
		sideBar(), h('div.page', waiting, notices, main));
	countAll();
	counting = setInterval(countAll, COUNT_EVERY_MS);
	await run(null, open);
}
globalThis.addEventListener('hashchange', () => { if (token()) open(); });
globalThis.addEventListener('unhandledrejection', (event) => tell(event.reason));
watchSession();
const ended = await finishSignIn();
if (ended !== 'window') await start(ended);
