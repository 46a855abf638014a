// What every view is made of: elements, formats, tables, dialogs, messages. Elements are created and never parsed, so that
// no data can become markup.

const PROPERTIES = new Set(['value', 'checked', 'disabled', 'hidden', 'required', 'readOnly', 'open', 'tabIndex', 'indeterminate']);

/**
 * An element, by tag and classes (`p.muted.small`). Names of props that begin with `on` are listeners, others attributes;
 * null and false are left out. props may be left out.
 */
export function h(tag, props, ...children) {
	const [name, ...classes] = tag.split('.');
	const element = document.createElement(name);
	const has = props?.constructor === Object;
	if (classes.length) element.className = classes.join(' ');
	if (name === 'input') element.autocomplete = 'off';
	for (const [key, value] of has ? Object.entries(props) : []) {
		if (value === undefined || value === null || (value === false && !PROPERTIES.has(key))) continue;
		if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
		else if (PROPERTIES.has(key)) element[key] = value;
		else element.setAttribute(key, value === true ? '' : value);
	}
	element.append(...(has ? children : [props, ...children]).flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
	return element;
}

const SVG = 'http://www.w3.org/2000/svg';
export function svg(tag, attributes, ...children) {
	const element = document.createElementNS(SVG, tag);
	for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
	element.append(...children.flat());
	return element;
}

export const sum = (items, value) => items.reduce((total, item) => total + value(item), 0);

// ── Formats
const integers = new Intl.NumberFormat();
export const number = (value) => integers.format(value);
export const units = (value) => `${number(value)} ${value === 1 ? 'unit' : 'units'}`;
export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

const currencies = new Map();
function currencyFormat(currency) {
	if (!currencies.has(currency)) {
		currencies.set(currency, new Intl.NumberFormat(undefined, { style: 'currency', currency, currencyDisplay: 'code' }));
	}
	return currencies.get(currency);
}
const digits = (currency) => currencyFormat(currency).resolvedOptions().maximumFractionDigits;
/** Minor units with their currency. */
export const money = (minor, currency) => currencyFormat(currency).format(minor / 10 ** digits(currency));
/** Minor units as they are typed. */
export const amountText = (minor, currency) => (minor / 10 ** digits(currency)).toFixed(digits(currency));
/** What was typed as minor units, or null. A comma or a point may separate the decimals; nothing else may stand in it. */
export function readAmount(text, currency) {
	const match = /^(-?)(\d+)(?:[.,](\d+))?$/.exec(text.trim());
	if (!match || (match[3] ?? '').length > digits(currency)) return null;
	const minor = Number(match[2] + (match[3] ?? '').padEnd(digits(currency), '0'));
	return Number.isSafeInteger(minor) ? (match[1] ? -minor : minor) : null;
}

const relative = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' });
const SPANS = [['year', 31536000], ['month', 2592000], ['day', 86400], ['hour', 3600], ['minute', 60]];
export function ago(at) {
	const seconds = (new Date(at) - Date.now()) / 1000;
	const span = SPANS.find(([, length]) => Math.abs(seconds) >= length);
	if (span) return relative.format(Math.trunc(seconds / span[1]), span[0]);
	return Math.abs(seconds) < 10 ? 'just now' : relative.format(Math.trunc(seconds), 'second');
}
export const instant = (at) => new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
/** "5 minutes ago", with the whole time behind it; kept true while it is shown. */
export function time(at) {
	if (!at) return '–';
	return h('time', { datetime: at, title: instant(at) }, ago(at));
}
setInterval(() => {
	if (document.hidden) return;
	for (const shown of document.querySelectorAll('time[datetime]')) shown.textContent = ago(shown.dateTime);
}, 15000);
export function duration(seconds) {
	if (seconds === null || seconds === undefined) return '–';
	if (seconds < 1) return 'under 1 s';
	for (const [length, unit] of [[86400, 'd'], [3600, 'h'], [60, 'min']]) {
		if (seconds >= length) return `${number(Math.floor(seconds / length))} ${unit}`;
	}
	return `${Math.floor(seconds)} s`;
}
const days = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeZone: 'UTC' });
export const day = (date) => (date ? days.format(new Date(`${date}T00:00:00Z`)) : '–');
export const words = (name) => name.replaceAll('_', ' ');

// ── Small parts
const TONES = { open: 'info', shipped: 'ok', cancelled: 'off', paid: 'ok', awaiting_payment: 'info', refunded: 'off', void: 'off',
	delivered: 'ok', pending: 'info', dead: 'bad', discarded: 'off', active: 'ok', paused: 'warn', disabled: 'bad' };
export const badge = (text, tone) => h('span', { class: `badge ${tone ?? TONES[text] ?? 'off'}` }, words(text));
export const muted = (...content) => h('span.muted', content);
export const link = (href, text, className) => h('a', { href, class: className }, text);

/** A button whose action runs once at a time; its errors are told. */
export function button(text, act, className = '', more = {}) {
	return h('button', { type: 'button', class: className, onclick: (event) => run(event.currentTarget, act), ...more }, text);
}
export async function run(pressed, act) {
	if (pressed?.getAttribute('aria-busy') === 'true') return;
	pressed?.setAttribute('aria-busy', 'true');
	try { await act(); } catch (error) { tell(error); } finally { pressed?.removeAttribute('aria-busy'); }
}

let fields = 0;
/** A labelled control; `hint` and a mistake (`control.mistake(text)`) are bound to it. */
export function field(label, control, { hint, wide } = {}) {
	fields += 1;
	control.id ||= `f${fields}`;
	const said = h('span.mistake', { id: `${control.id}-mistake` });
	const told = hint ? h('span.muted.hint', { id: `${control.id}-hint` }, hint) : null;
	control.setAttribute('aria-describedby', [told?.id, said.id].filter(Boolean).join(' '));
	control.mistake = (text) => {
		said.textContent = text ?? '';
		if (text) control.setAttribute('aria-invalid', 'true'); else control.removeAttribute('aria-invalid');
	};
	return h('div', { class: wide ? 'field wide' : 'field' }, h('label', { for: control.id }, label), control, told, said);
}
export function select(choices, value, props = {}) {
	const list = h('select', props, choices.map(([key, text]) => h('option', { value: key }, text)));
	list.value = value ?? choices[0][0];
	return list;
}
export const panel = (title, ...content) => h('section.panel', title ? h('h2', { tabIndex: -1 }, title) : null, content);
/** Draws a place anew. Whoever was in it with the keys stays there: on the same control, else at its heading. */
export function redraw(place, ...content) {
	const called = (control) => control.getAttribute('aria-label') ?? control.textContent;
	const was = place.contains(document.activeElement) ? document.activeElement : null;
	place.replaceChildren(...content);
	if (!was) return;
	const same = [...place.querySelectorAll(was.tagName)].find((control) => called(control) === called(was) && !control.disabled);
	(same ?? place.querySelector('h2, h1'))?.focus({ preventScroll: true });
}
/** Names and values. */
export function facts(pairs) {
	return h('dl.facts', pairs.filter(Boolean).map(([name, value]) => h('div', h('dt', name), h('dd', value ?? '–'))));
}
export const heading = (title, ...beside) => h('header.head', h('h1', { tabIndex: -1 }, title), h('div.actions', beside));
export function notice(tone, content, ...actions) {
	return h('div', { class: `notice ${tone}`, role: tone === 'bad' ? 'alert' : 'status' }, h('div', content), actions.length ? h('div.actions', actions) : null);
}
export const nothing = (title, text, ...actions) => h('div.nothing', h('p.strong', title), text ? h('p.muted', text) : null, actions);

// ── Tables
/**
 * columns: [label, cell(item), class?]; `num` aligns right. A link of class `row` in a cell is followed by the whole row. On a
 * narrow screen a row is a card whose cells carry their label.
 */
export function table(caption, columns, items) {
	const body = h('tbody');
	const add = (more) => body.append(...more.map((item) => h('tr', columns.map(([label, cell, name]) => {
		const value = cell(item);
		return h('td', { class: name, 'data-label': label }, value === null || value === undefined || value === '' || value === false ? muted('–') : value);
	}))));
	add(items);
	const element = h('div.table', h('table', h('caption.hidden', caption),
		h('thead', h('tr', columns.map(([label, , name]) => h('th', { scope: 'col', class: name === 'num' ? name : null }, label || h('span.hidden', 'Actions'))))), body));
	element.add = add;
	return element;
}
export const rowLink = (href, text) => h('a', { href, class: 'row' }, text);

/** Pages of a list, with a button for the next one. `path` has its query already. */
export async function pages(at, ctx, path, render, empty) {
	let shown = null;
	const more = h('div.more');
	// An answer that a later question at the same place has overtaken is dropped.
	const mine = Symbol(path);
	at.asked = mine;
	const load = async (after) => {
		const page = await ctx.get(path + (after ? `${path.includes('?') ? '&' : '?'}after=${encodeURIComponent(after)}` : ''));
		if (at.asked !== mine) return page;
		if (shown && after) shown.add(page.items);
		else { shown = page.items.length ? render(page.items) : empty; at.replaceChildren(shown, more); }
		more.replaceChildren(...(page.next ? [button('Show more', () => load(page.next))] : []));
		return page;
	};
	at.setAttribute('aria-busy', 'true');
	try { return await load(null); } finally { if (at.asked === mine) at.removeAttribute('aria-busy'); }
}

/** Controls whose values stand in the address. controls: name → element; `changed` loads again. */
export function filters(ctx, controls, changed) {
	let timer = 0;
	const apply = () => {
		clearTimeout(timer);
		ctx.setQuery(Object.fromEntries(Object.entries(controls).map(([name, control]) => [name, control.type === 'checkbox' ? (control.checked ? '1' : '') : control.value.trim()])));
		changed().catch((error) => { if (!ctx.signal.aborted) tell(error); });
	};
	for (const [name, control] of Object.entries(controls)) {
		if (control.type === 'checkbox') control.checked = ctx.query.get(name) === '1'; else control.value = ctx.query.get(name) ?? '';
		control.addEventListener(control.tagName === 'INPUT' && control.type !== 'checkbox' ? 'input' : 'change', () => {
			clearTimeout(timer);
			timer = setTimeout(apply, control.tagName === 'INPUT' ? 250 : 0);
		});
	}
	return (...content) => h('form.filters', { role: 'search', onsubmit: (event) => { event.preventDefault(); apply(); } }, content);
}
export const search = (placeholder) => h('input', { type: 'search', placeholder, 'aria-label': placeholder, 'data-search': '', maxlength: 200 });
export function query(values) {
	const text = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== '' && value !== null && value !== undefined)).toString();
	return text ? `?${text}` : '';
}

// ── Dialogs
/**
 * Asks in a dialog. `build(close)` returns its content; the promise resolves with what `close` was given, or undefined
 * after Escape.
 */
export function dialog(title, build, className = '') {
	return new Promise((resolve) => {
		const opener = document.activeElement;
		const element = h('dialog', { class: className, 'aria-labelledby': 'dialog-title' });
		const close = (value) => { document.body.append(said, alerts); element.close(); element.remove(); opener?.focus?.({ preventScroll: true }); resolve(value); };
		element.addEventListener('cancel', (event) => { event.preventDefault(); close(undefined); });
		element.append(h('h2', { id: 'dialog-title', tabIndex: -1 }, title), ...[build(close)].flat(Infinity).filter(Boolean));
		document.body.append(element);
		element.showModal();
		(element.querySelector('[autofocus]') ?? element.querySelector('h2')).focus();
	});
}
export const buttons = (...content) => h('div.buttons', content);
/** The end of a dialog that may be left as it is. */
export const endings = (close, ...acts) => buttons(button('Cancel', () => close(undefined)), acts);
export function confirm(title, text, act, className = 'main') {
	return dialog(title, (close) => [h('p', text), buttons(button('Keep it as it is', () => close(false)), button(act, () => close(true), className))]);
}
/** A text that must not be blank, or undefined. */
export function ask(title, label, act, className = 'main', maxlength = 2000) {
	return dialog(title, (close) => {
		const asked = h('textarea', { required: true, maxlength, rows: 3, autofocus: true });
		return h('form', { onsubmit: (event) => { event.preventDefault(); if (asked.value.trim()) close(asked.value.trim()); else asked.focus(); } },
			field(label, asked, { wide: true }), endings(close, h('button', { class: className }, act)));
	});
}
/** One work after the other, with its progress and a way to stop. work(report, stopped) → text. */
export function progress(title, work) {
	return dialog(title, (close) => {
		const bar = h('progress', { max: 1, 'aria-label': title });
		const said = h('p', { role: 'status' });
		let stopped = false;
		const end = buttons(button('Stop', () => { stopped = true; }));
		const report = (done, all, text) => { if (all) { bar.max = all; bar.value = done; } said.textContent = text; };
		work(report, () => stopped).then(
			(text) => { bar.remove(); said.textContent = text; },
			(error) => { bar.remove(); said.textContent = error.message; said.className = 'mistake'; },
		).finally(() => { const done = button('Close', () => close(true), 'main'); end.replaceChildren(done); done.focus(); });
		return [bar, said, end];
	});
}
/** Hands a text to the browser as a file. */
export function download(name, text, type) {
	const href = URL.createObjectURL(new Blob([text], { type }));
	h('a', { href, download: name }).click();
	setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
export function copyable(text, label) {
	return h('div.copy', h('code', text), button('Copy', async () => { await navigator.clipboard.writeText(text); say(`${label} is on the clipboard.`); }));
}

// ── Messages
const said = h('div', { id: 'said', role: 'status', 'aria-live': 'polite' });
const alerts = h('div', { id: 'alerts', role: 'alert' });
document.body.append(said, alerts);
let fade = 0;
/** Behind an open dialog nobody would see or hear them. */
const place = () => (document.querySelector('dialog[open]') ?? document.body).append(said, alerts);
export function say(text) {
	place();
	clearTimeout(fade);
	alerts.replaceChildren();
	said.textContent = text;
	fade = setTimeout(() => { said.textContent = ''; }, 8000);
}
export function hush() { said.textContent = ''; alerts.replaceChildren(); }
/** What went wrong, of which kind it is, and what to do about it. It stays until it is closed. */
export function tell(error) {
	if (error?.name === 'AbortError') return;
	place();
	said.textContent = '';
	const kind = { Refusal: 'Not done', Failure: 'Nothing was changed', UnknownOutcome: 'No answer yet' }[error.name] ?? 'Something went wrong';
	alerts.replaceChildren(h('div', h('strong', kind), ' ', error.message,
		error.requestId ? muted(` Request ${error.requestId}`) : null), button('Close', hush, 'quiet'));
}
export function problem(error, again) {
	return h('div.nothing', { role: 'alert' }, h('p.strong', error.status === 404 ? 'There is nothing here' : error.status === 403 ? 'You may not see this' : 'This could not be loaded'),
		h('p.muted', error.message), error.requestId ? h('p.muted.small', `Request ${error.requestId}`) : null, button('Try again', again));
}

/** Runs `work` now and again while the page is looked at, until the view is left. Errors wait for the next time. */
export function poll(ctx, everyMs, work) {
	let timer = 0;
	const next = async () => {
		clearTimeout(timer);
		if (ctx.signal.aborted) return;
		if (!document.hidden) try { await work(); } catch (error) { if (error.status === 401) return; }
		if (!ctx.signal.aborted) timer = setTimeout(next, everyMs);
	};
	document.addEventListener('visibilitychange', () => { if (!document.hidden) next(); }, { signal: ctx.signal });
	ctx.signal.addEventListener('abort', () => clearTimeout(timer));
	timer = setTimeout(next, everyMs);
}
