// What client.js promises, as cases that run in a browser and in Node. The network, the clock, chance and sleep are given to it,
// so that each case decides what happens and nothing waits.

/** One made-up server: answers in turn; a function is called, an Error is a connection that broke. */
function world(lib, answers, more = {}) {
	const asked = [];
	const slept = [];
	const kept = new Map();
	const storage = { get length() { return kept.size; }, key: (n) => [...kept.keys()][n] ?? null, getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value), removeItem: (name) => kept.delete(name) };
	let keys = 0;
	const settings = {
		base: 'https://api.example/stage/', token: () => 'T', storage, random: () => 0.5, now: () => 1_000_000, newKey: () => `key-${keys += 1}`, isOnline: () => true,
		sleep: async (ms) => { slept.push(ms); },
		fetch: async (url, request) => {
			asked.push({ url: String(url), key: request.headers['idempotency-key'], ...request });
			let answer = answers.shift();
			if (typeof answer === 'function') answer = await answer(request);
			if (answer instanceof Error) throw answer;
			const [status, document, headers] = answer;
			return { status, ok: status < 300, text: async () => (document === undefined ? '' : typeof document === 'string' ? document : JSON.stringify(document)), headers: { get: (name) => headers?.[name] ?? null } };
		},
		...more,
	};
	return { client: lib.createClient(settings), asked, slept, kept, settings };
}
const equal = (a, b, what) => { const [left, right] = [JSON.stringify(a), JSON.stringify(b)]; if (left !== right) throw new Error(`${what ?? 'differs'}: ${left} is not ${right}`); };
async function thrown(promise) { try { await promise; } catch (error) { return error; } throw new Error('nothing was thrown'); }
const lost = () => new TypeError('network');
const problem = (error, more) => ({ error, title: error, detail: 'd', ...more });

export const cases = {
	async 'an answer ends the intention and the next equal request has a new key'(lib) {
		const w = world(lib, [[200, { ok: 1 }], [200, { ok: 2 }]]);
		equal(await w.client.send('POST', '/orders/1/allocate', { qty: 1 }), { ok: 1 });
		await w.client.send('POST', '/orders/1/allocate', { qty: 1 });
		equal(w.asked.map((a) => a.key), ['key-1', 'key-2']);
		equal(w.asked[0].url, 'https://api.example/stage/orders/1/allocate', 'the base keeps its path');
		equal(w.kept.size, 0);
	},
	async 'two clicks are one request'(lib) {
		let answer;
		const w = world(lib, [() => new Promise((resolve) => { answer = () => resolve([200, { ok: 1 }]); })]);
		const both = [w.client.send('POST', '/x', {}), w.client.send('POST', '/x', {})];
		await Promise.resolve();
		answer();
		equal(await Promise.all(both), [{ ok: 1 }, { ok: 1 }]);
		equal(w.asked.length, 1);
	},
	async 'a lost answer is asked for again under the same key with full jitter'(lib) {
		const w = world(lib, [lost(), lost(), lost(), [200, { ok: 1 }]]);
		await w.client.send('POST', '/x', {});
		equal(new Set(w.asked.map((a) => a.key)).size, 1);
		equal(w.slept, [200, 400, 800], 'half of 400, 800, 1,600');
	},
	async 'Retry-After is the least wait, in seconds or as a date'(lib) {
		const date = new Date(1_000_000 + 7000).toUTCString();
		const w = world(lib, [[503, problem('unavailable'), { 'retry-after': '3' }], [429, undefined, { 'retry-after': date }], [200, {}]]);
		await w.client.send('POST', '/x', {});
		equal(w.slept, [3200, 7200]);
		equal([lib.retryAfterMs('Sun, 06 Nov 1994 08:49:37 GMT', 1_000_000_000_000), lib.retryAfterMs('soon', 0), lib.retryAfterMs(null, 0)], [0, null, null]);
	},
	async 'a refusal is final, names its code and frees the key'(lib) {
		const w = world(lib, [[422, problem('insufficient_ats', { lines: [{ skuId: 's', requested: 6, available: 2 }] }), { 'x-request-id': 'r' }]]);
		const error = await thrown(w.client.send('POST', '/x', {}));
		equal([error.name, error.code, error.status, error.requestId, error.problem.lines[0].available], ['Refusal', 'insufficient_ats', 422, 'r', 2]);
		equal([w.asked.length, w.kept.size], [1, 0]);
	},
	async 'a failure says that nothing was changed and keeps the key'(lib) {
		const busy = () => [503, problem('unavailable')];
		const w = world(lib, [busy(), busy(), busy(), [200, {}]], { attempts: 3 });
		equal((await thrown(w.client.send('POST', '/x', {}))).name, 'Failure');
		await w.client.send('POST', '/x', {});
		equal(new Set(w.asked.map((a) => a.key)).size, 1);
	},
	async 'an outcome that may have happened unseen stays unknown whatever fails after it'(lib) {
		for (const first of [lost(), [503, problem('outcome_unknown')], [504, 'gateway'], [409, problem('idempotency_key_in_use')]]) {
			const w = world(lib, [first, [503, problem('unavailable')]], { attempts: 2 });
			const error = await thrown(w.client.send('POST', '/x', {}, { label: 'L' }));
			equal([error.name, error.intention.label], ['UnknownOutcome', 'L']);
			equal(w.client.unanswered().length, 1);
		}
	},
	async 'an intention outlives a reload and is resumed under its key'(lib) {
		const w = world(lib, [lost()], { attempts: 1 });
		await thrown(w.client.send('POST', '/x', { qty: 1 }, { label: 'L' }));
		const again = world(lib, [[200, { ok: 1 }]], { storage: w.settings.storage });
		const [intention] = again.client.unanswered();
		equal(await again.client.resume(intention), { ok: 1 });
		equal([again.asked[0].key, again.client.unanswered()], ['key-1', []]);
	},
	async 'an intention that is older than the server keeps keys is not sent under its old one'(lib) {
		const w = world(lib, [lost()], { attempts: 1 });
		await thrown(w.client.send('POST', '/x', {}));
		const later = world(lib, [[200, {}]], { storage: w.settings.storage, now: () => 1_000_000 + 23.5 * 3600 * 1000, newKey: () => 'new' });
		equal(later.client.unanswered(), []);
		await later.client.send('POST', '/x', {});
		equal(later.asked[0].key, 'new');
	},
	async 'while offline it waits and spends no attempt'(lib) {
		let online = false;
		const waits = [];
		const w = world(lib, [[200, {}]], { isOnline: () => online, online: async () => { online = true; }, onWait: (wait) => waits.push(wait.why), attempts: 1 });
		await w.client.send('POST', '/x', {});
		equal([waits, w.asked.length], [['offline'], 1]);
	},
	async 'after a 401 the same request goes on under its key with the new token'(lib) {
		const w = world(lib, [[401, problem('unauthenticated')], [200, { ok: 1 }]], { renew: async () => true, attempts: 1 });
		equal(await w.client.send('POST', '/x', {}), { ok: 1 });
		equal(w.asked.map((a) => a.key), ['key-1', 'key-1']);
		const refused = world(lib, [lost(), [401, problem('unauthenticated')]], { attempts: 3 });
		equal((await thrown(refused.client.send('POST', '/x', {}))).name, 'UnknownOutcome', 'whoever is not let in learns nothing');
	},
	async 'a read is repeated and then fails, and has no key'(lib) {
		const w = world(lib, [lost(), [502, 'bad gateway'], [200, { items: [] }]]);
		equal(await w.client.get('/orders?q=a'), { items: [] });
		equal(w.asked.map((a) => a.key), [undefined, undefined, undefined]);
		equal((await thrown(world(lib, [lost()], { attempts: 1 }).client.get('/x'))).name, 'Failure');
	},
	async 'what is not JSON is read as text and its errors still as problems'(lib) {
		const w = world(lib, [[200, 'a,b\r\n1,2\r\n'], [404, problem('not_found')], [200, '']]);
		equal(await w.client.get('/x.csv', { accept: 'text/csv' }), 'a,b\r\n1,2\r\n');
		equal(w.asked[0].headers.accept, 'text/csv');
		equal((await thrown(w.client.get('/x.csv', { accept: 'text/csv' }))).code, 'not_found');
		equal(await w.client.get('/x.csv', { accept: 'text/csv' }), '');
	},
	async 'a storage that is full costs the reload and not the request'(lib) {
		const storage = { length: 0, key: () => null, getItem: () => null, setItem: () => { throw new Error('full'); }, removeItem: () => {} };
		const w = world(lib, [lost(), [200, {}]], { storage });
		await w.client.send('POST', '/x', {});
		equal(new Set(w.asked.map((a) => a.key)).size, 1);
	},
};

/** Runs all; returns what failed, by name. */
export async function run(lib) {
	const failed = {};
	for (const [name, test] of Object.entries(cases)) {
		try { await test(lib); } catch (error) { failed[name] = String(error.stack ?? error); }
	}
	return { ran: Object.keys(cases).length, failed };
}
