// Who is signed in: a token in session storage, from the configured issuer (OIDC, authorization code with PKCE) or pasted.
import { h, buttons, button, dialog, field, say } from './ui.js';

/** What the server says of itself: {scopeClaim, signIn: null | {authorizeUrl, tokenUrl, clientId, scope, token}}. */
export const settings = JSON.parse(document.querySelector('meta[name=holdfast]').content);
const TOKEN = 'holdfast.token';
const PENDING = 'holdfast.sign-in';
/** This long before its end a token is renewed. */
const WARN_MS = 120_000;
const told = new BroadcastChannel('holdfast.sign-in');

export const token = () => sessionStorage.getItem(TOKEN);

function claims() {
	const part = token()?.split('.')[1];
	if (!part) return null;
	try {
		const bytes = Uint8Array.from(atob(part.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
		return JSON.parse(new TextDecoder().decode(bytes));
	} catch { return null; }
}

/** What an API key may do is not in it. A request of each scope tells: 403 without it. One that would change something carries no
 * Idempotency-Key, which is refused before anything is read. */
const PROBES = { 'orders:read': ['GET', 'orders?limit=1&lines=false'], 'orders:write': ['POST', 'orders'], 'credit:write': ['PATCH', 'customers/00000000-0000-0000-0000-000000000000'],
	'outbox:admin': ['GET', 'admin/attention'], 'platform:admin': ['GET', 'admin/exceptions?tenant=none&limit=1'] };
let keyMay = new Set(Object.keys(PROBES));
/** Finds out what the key may do; resolves with whether it is known. Where no answer comes, the server decides later. */
export async function probe() {
	if (!token() || claims()) return true;
	const status = async ([method, path]) => {
		try { return (await fetch(new URL(path, new URL('.', location.href)), { method, headers: { authorization: `Bearer ${token()}` }, cache: 'no-store' })).status; } catch { return 0; }
	};
	const answers = await Promise.all(Object.entries(PROBES).map(async ([scope, asked]) => [scope, await status(asked)]));
	keyMay = new Set(answers.filter(([, answer]) => answer !== 403).map(([scope]) => scope));
	return !answers.some(([, answer]) => answer === 401);
}

/** Whether to offer what needs this scope. */
export function may(scope) {
	const known = claims();
	if (!known) return keyMay.has(scope);
	const held = known[settings.scopeClaim];
	return (Array.isArray(held) ? held : String(held ?? '').split(/\s+/)).includes(scope);
}
export const who = () => { const known = claims(); return known ? known.name ?? known.preferred_username ?? known.email ?? 'Signed in' : 'API key'; };
/** Milliseconds until the token ends; Infinity where it says nothing. */
export function endsInMs() {
	const exp = claims()?.exp;
	return typeof exp === 'number' ? exp * 1000 - Date.now() : Infinity;
}
export const endsSoon = () => endsInMs() < WARN_MS;

export function accept(text) { sessionStorage.setItem(TOKEN, text.trim()); }
export function signOut() { sessionStorage.removeItem(TOKEN); }

// ── OIDC
const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));
const redirectUri = () => location.origin + location.pathname;

/** The issuer's page, and what must be remembered until it sends the person back. */
async function authorize(extra) {
	const verifier = random();
	const state = random();
	const challenge = base64url(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier))));
	const url = new URL(settings.signIn.authorizeUrl);
	const values = { response_type: 'code', client_id: settings.signIn.clientId, redirect_uri: redirectUri(), scope: settings.signIn.scope, state,
		code_challenge: challenge, code_challenge_method: 'S256' };
	for (const [name, value] of Object.entries(values)) url.searchParams.set(name, value);
	return { url, pending: { verifier, state, ...extra } };
}
/** Goes to the issuer in this tab, and comes back to the same view. */
export async function redirectToIssuer() {
	const { url, pending } = await authorize({ hash: location.hash });
	sessionStorage.setItem(PENDING, JSON.stringify(pending));
	location.assign(url);
}
/** Asks the issuer in a small window, so that what is typed here stays. */
async function issuerWindow() {
	const small = window.open('', 'holdfast-sign-in', 'popup,width=480,height=640');
	if (!small) throw new Error('The browser did not open a window to sign in. Allow it for this page.');
	const { url, pending } = await authorize({ popup: true });
	// A copy of this tab's session storage is made when the window opens: it is handed over by hand instead.
	small.sessionStorage.setItem(PENDING, JSON.stringify(pending));
	small.location.assign(url);
}

/**
 * Ends a sign-in that the issuer sent back here. Returns null, or what went wrong; 'window' in a small window, which has done
 * its work.
 */
export async function finishSignIn() {
	const answer = new URLSearchParams(location.search);
	if (!settings.signIn || !(answer.has('code') || answer.has('error'))) return null;
	let pending = null;
	try { pending = JSON.parse(sessionStorage.getItem(PENDING) ?? 'null'); } catch { pending = null; }
	sessionStorage.removeItem(PENDING);
	history.replaceState(null, '', location.pathname + (pending?.hash ?? location.hash));
	if (!pending || pending.state !== answer.get('state')) return 'This sign-in was not begun here, or is too old. Begin again.';
	if (answer.has('error')) return `The sign-in was refused: ${answer.get('error_description') ?? answer.get('error')}`;
	const form = new URLSearchParams({ grant_type: 'authorization_code', code: answer.get('code'), redirect_uri: redirectUri(),
		client_id: settings.signIn.clientId, code_verifier: pending.verifier });
	try {
		const got = await fetch(settings.signIn.tokenUrl, { method: 'POST', body: form, headers: { accept: 'application/json' } });
		const tokens = await got.json();
		const found = tokens[settings.signIn.token];
		if (!got.ok || !found) return `The sign-in failed: ${tokens.error_description ?? tokens.error ?? `the issuer answered ${got.status}`}`;
		if (pending.popup) { told.postMessage(found); window.close(); return 'window'; }
		accept(found);
		return null;
	} catch { return 'The issuer cannot be reached. Try again.'; }
}

// ── Pages and dialogs
function pasting(done) {
	const pasted = h('input', { type: 'password', required: true, autofocus: !settings.signIn, spellcheck: 'false' });
	return h('form', { onsubmit: (event) => {
		event.preventDefault();
		accept(pasted.value);
		if (endsInMs() <= 0) { signOut(); pasted.mistake('This token has expired.'); pasted.focus(); return; }
		done();
	} }, field('Token or API key', pasted, { wide: true, hint: 'It is kept in this tab and forgotten when the tab is closed.' }),
	buttons(h('button.main', 'Sign in')));
}
/** The page of its own for whoever is not signed in. */
export function signInPage(error, done) {
	const own = settings.signIn
		? [buttons(button('Sign in', redirectToIssuer, 'main', { autofocus: true })), h('details', h('summary', 'Use a token or an API key'), pasting(done))]
		: pasting(done);
	return h('main.sign-in', { id: 'main' }, h('div.panel',
		h('h1', 'Holdfast'), h('p.muted', 'Orders, stock and what needs a person.'),
		error ? h('div.notice.bad', { role: 'alert' }, error) : null, own));
}

let renewing = null;
/** A new token while the work stays on the screen; resolves with whether there is one. */
export function renew() {
	renewing ??= dialog('Sign in again', (close) => {
		const took = () => { say('Signed in.'); close(true); };
		told.onmessage = ({ data }) => { accept(data); took(); };
		return [h('p', endsInMs() > 0 && endsSoon() ? 'Your sign-in is about to end. Nothing on the screen is lost.' : 'Your sign-in has ended. Nothing on the screen is lost: sign in and it goes on.'),
			settings.signIn
				? [buttons(button('Not now', () => close(false)), button('Sign in', issuerWindow, 'main', { autofocus: true })), h('details', h('summary', 'Use a token or an API key'), pasting(took))]
				: [pasting(took), buttons(button('Not now', () => close(false), 'quiet'))]];
	}).then((done) => done === true).finally(() => { renewing = null; told.onmessage = null; });
	return renewing;
}
