/**
 * A client for Holdfast's API that a browser, Node or a worker can use. One file without dependencies: copy it.
 *
 * It promises:
 * - One key per intention. `send` makes an Idempotency-Key for a request and keeps it, with the request, until there is an
 *   answer: over retries, a second click and, where `storage` is given, a reload. So an intention is carried out once or not
 *   at all, however often it is sent.
 * - A request that got no answer, or was told to come back, is repeated: at random times within a growing span ("full
 *   jitter"), never sooner than the server's Retry-After. While the machine is offline it waits.
 * - Three kinds of error, because a person does something else after each:
 *   `Refusal`: the server decided no. It is final; nothing was changed.
 *   `Failure`: nothing was changed; the same request may be sent again.
 *   `UnknownOutcome`: it was done once or not at all. Sending the same request again, even after a reload, finds out.
 *
 * It relies on the server for the rest: the same key with the same request is done once, and replays its answer for 24 hours.
 *
 *     const client = createClient({ base: 'https://api.example.com/', token: () => token, storage: sessionStorage });
 *     const done = await client.send('POST', `/orders/${id}/allocate`, { skuId, qty: 6 });
 */

/** The server keeps a key for 24 hours; after that the same key would be a new request. An hour of that is for clocks. */
const KEY_LIVES_MS = 23 * 3600 * 1000;
const PREFIX = 'holdfast.intention.';
const JSON_TYPE = 'application/json';

/**
 * @typedef {object} Problem What the server says (RFC 9457); `error` is the stable code.
 * @property {string} [error]
 * @property {string} [title]
 * @property {string} [detail]
 * @property {{path: string, message: string}[]} [errors]
 * @property {{skuId: string, requested: number, available: number}[]} [lines]
 *
 * @typedef {object} Intention A request that has no answer yet.
 * @property {string} key
 * @property {string} method
 * @property {string} path
 * @property {unknown} body
 * @property {string} [label] What a person calls it.
 * @property {number} at When it was first sent, in ms since 1970.
 *
 * @typedef {object} Wait Told before each repetition.
 * @property {'offline' | 'busy' | 'no answer' | 'running'} why
 * @property {number} attempt The attempt that has failed, from 1; 0 where it waits to be sent at all.
 * @property {number} ms How long it waits; 0 while offline.
 * @property {Intention | null} intention
 *
 * @typedef {object} Options
 * @property {string | URL} base Address of the API; paths are appended to it.
 * @property {() => string | null} token The bearer token of now.
 * @property {() => Promise<boolean>} [renew] Called after a 401: gets a new token; true has the request sent again.
 * @property {Storage | null} [storage] Keeps intentions over a reload, for example sessionStorage.
 * @property {(wait: Wait) => void} [onWait]
 * @property {number} [attempts] How often a request is sent at most (6).
 * @property {number} [firstMs] The span of the first pause (400); it doubles each time …
 * @property {number} [capMs] … up to this (15,000).
 * @property {number} [timeoutMs] How long one attempt may take (30,000, as API Gateway).
 * @property {typeof fetch} [fetch]
 * @property {() => number} [random] From 0 to 1.
 * @property {(ms: number, signal?: AbortSignal) => Promise<void>} [sleep]
 * @property {() => number} [now]
 * @property {() => string} [newKey]
 * @property {() => boolean} [isOnline]
 * @property {(signal?: AbortSignal) => Promise<void>} [online] Resolves when the machine is online again.
 */

/** The server decided no: nothing was changed, and the same request gets the same answer. */
export class Refusal extends Error {
	/** @param {number} status @param {Problem} problem @param {string | null} requestId */
	constructor(status, problem, requestId) {
		super(sentence(problem, status));
		this.name = 'Refusal';
		this.status = status;
		this.problem = problem;
		/** The stable code. */
		this.code = problem.error ?? '';
		this.requestId = requestId;
	}
}

/** Nothing was changed; the same request may be sent again. `status` is 0 where the server was not reached. */
export class Failure extends Error {
	/** @param {string} message @param {number} status @param {string | null} requestId */
	constructor(message, status = 0, requestId = null) {
		super(message);
		this.name = 'Failure';
		this.status = status;
		this.requestId = requestId;
	}
}

/** It was done once or not at all. Its key is kept: sending the same request again finds out. */
export class UnknownOutcome extends Error {
	/** @param {Intention} intention @param {string | null} requestId */
	constructor(intention, requestId = null) {
		super('No answer came, so it is not known whether this was done. Sending it again is safe: it happens at most once.');
		this.name = 'UnknownOutcome';
		this.intention = intention;
		this.requestId = requestId;
	}
}

/** @param {Problem} problem @param {number} status */
function sentence(problem, status) {
	const mistakes = (problem.errors ?? []).map((e) => `${e.path} ${e.message}`.trim()).join('; ');
	return [problem.title ?? `The server answered ${status}`, mistakes || problem.detail].filter(Boolean).join('. ');
}

/**
 * Seconds or a date of RFC 9110, as milliseconds from now; null where it says nothing.
 * @param {string | null} text @param {number} now
 */
export function retryAfterMs(text, now) {
	if (text === null || text.trim() === '') return null;
	if (/^\d+$/.test(text.trim())) return Number(text) * 1000;
	const at = Date.parse(text);
	return Number.isNaN(at) ? null : Math.max(0, at - now);
}

/** @param {number} ms @param {AbortSignal} [signal] @returns {Promise<void>} */
function pause(ms, signal) {
	return new Promise((resolve, reject) => {
		const stop = () => { clearTimeout(timer); reject(signal?.reason); };
		const timer = setTimeout(() => { signal?.removeEventListener('abort', stop); resolve(); }, ms);
		if (signal?.aborted) stop();
		signal?.addEventListener('abort', stop, { once: true });
	});
}

/** @param {AbortSignal} [signal] @returns {Promise<void>} */
function untilOnline(signal) {
	return new Promise((resolve, reject) => {
		const done = () => { globalThis.removeEventListener('online', done); resolve(); };
		signal?.addEventListener('abort', () => { globalThis.removeEventListener('online', done); reject(signal.reason); }, { once: true });
		globalThis.addEventListener('online', done);
	});
}

/** @param {Options} options */
export function createClient(options) {
	const {
		base, token, renew, storage = null, onWait = () => {}, attempts = 6, firstMs = 400, capMs = 15000, timeoutMs = 30000,
		fetch = globalThis.fetch.bind(globalThis), random = Math.random, sleep = pause, now = Date.now,
		newKey = () => globalThis.crypto.randomUUID(), isOnline = () => globalThis.navigator?.onLine !== false, online = untilOnline,
	} = options;
	/** @type {Map<string, Promise<any>>} Requests under way: a second click gets the promise of the first. */
	const running = new Map();
	/** @type {Map<string, Intention>} */
	const kept = new Map();

	/** @param {string} id @returns {Intention | null} */
	function recall(id) {
		let found = kept.get(id) ?? null;
		if (!found && storage) {
			try { found = JSON.parse(storage.getItem(PREFIX + id) ?? 'null'); } catch { found = null; }
		}
		if (found && now() - found.at > KEY_LIVES_MS) { forget(id); return null; }
		return found;
	}
	/** @param {string} id @param {Intention} intention */
	function keep(id, intention) {
		kept.set(id, intention);
		// A full storage costs the reload, not the request.
		try { storage?.setItem(PREFIX + id, JSON.stringify(intention)); } catch { /* kept in memory */ }
	}
	/** @param {string} id */
	function forget(id) {
		kept.delete(id);
		storage?.removeItem(PREFIX + id);
	}
	/** Whether a request and another are one intention. @param {string} method @param {string} path @param {unknown} body */
	const identity = (method, path, body) => JSON.stringify([method, path, body ?? null]);

	/** @param {string} method @param {string} path @param {unknown} body @param {string | null} key @param {AbortSignal | undefined} signal @param {string} accept */
	async function once(method, path, body, key, signal, accept) {
		const bearer = token();
		/** @type {Record<string, string>} */
		const headers = { accept };
		if (bearer) headers.authorization = `Bearer ${bearer}`;
		if (body !== undefined) headers['content-type'] = 'application/json';
		if (key) headers['idempotency-key'] = key;
		const limit = new AbortController();
		const timer = setTimeout(() => limit.abort(), timeoutMs);
		const giveUp = () => limit.abort(signal?.reason);
		signal?.addEventListener('abort', giveUp, { once: true });
		try {
			const url = new URL(path.replace(/^\//, ''), base);
			const answer = await fetch(url, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: limit.signal, cache: 'no-store' });
			const text = await answer.text();
			/** @type {any} */
			let document = null;
			if (accept !== JSON_TYPE && answer.ok) document = text;
			else try { document = text ? JSON.parse(text) : null; } catch { /* a gateway's own page */ }
			return { status: answer.status, document, retryAfter: answer.headers.get('retry-after'), requestId: answer.headers.get('x-request-id') };
		} finally {
			clearTimeout(timer);
			signal?.removeEventListener('abort', giveUp);
		}
	}

	/**
	 * Sends until there is an answer. `unknown`: whether one of the attempts may have been carried out unseen.
	 * @param {string} method @param {string} path @param {unknown} body @param {Intention | null} intention @param {AbortSignal} [signal] @param {string} [accept]
	 */
	async function carry(method, path, body, intention, signal, accept = JSON_TYPE) {
		let unknown = false;
		let renewed = false;
		/** @type {string | null} */
		let requestId = null;
		let last = 'The server was not reached.';
		let status = 0;
		for (let attempt = 1; ; attempt += 1) {
			if (!isOnline()) {
				onWait({ why: 'offline', attempt: attempt - 1, ms: 0, intention });
				await online(signal);
			}
			/** @type {string | null} */
			let retryAfter = null;
			/** @type {Wait['why']} */
			let why = 'no answer';
			try {
				const answer = await once(method, path, body, intention?.key ?? null, signal, accept);
				({ retryAfter, requestId, status } = answer);
				const problem = answer.document ?? {};
				if (status >= 200 && status < 300 && answer.document !== null) return answer.document;
				if (status === 401 && renew && !renewed) {
					renewed = true;
					// A new token is a person's work: it takes the time it takes, and is no attempt.
					if (await renew()) { attempt -= 1; continue; }
				}
				const again = status >= 500 || status === 429 || status === 408 || problem.error === 'idempotency_key_in_use' || status < 400;
				if (!again) {
					// Whoever is no longer let in learns nothing about an earlier attempt.
					if (intention && unknown && (status === 401 || status === 403)) throw new UnknownOutcome(intention, requestId);
					throw new Refusal(status, problem, requestId);
				}
				last = sentence(problem, status);
				if (problem.error === 'idempotency_key_in_use') { why = 'running'; unknown = true; }
				else if (problem.error === 'unavailable' || problem.error === 'internal' || status === 429) why = 'busy';
				else unknown = true; // outcome_unknown, and what a gateway says of a function that it lost
			} catch (error) {
				if (error instanceof Refusal || error instanceof UnknownOutcome) throw error;
				if (signal?.aborted && !intention) throw signal.reason;
				status = 0;
				// It may have arrived.
				unknown = true;
				if (signal?.aborted) throw new UnknownOutcome(/** @type {Intention} */ (intention), requestId);
			}
			if (attempt >= attempts) {
				if (intention && unknown) throw new UnknownOutcome(intention, requestId);
				throw new Failure(status === 0 ? 'The server cannot be reached.' : last, status, requestId);
			}
			const asked = retryAfterMs(retryAfter, now());
			const span = Math.min(capMs, firstMs * 2 ** (attempt - 1));
			const ms = asked === null ? random() * span : asked + random() * firstMs;
			onWait({ why, attempt, ms, intention });
			try { await sleep(ms, signal); } catch (error) {
				if (intention && unknown) throw new UnknownOutcome(intention, requestId);
				throw error;
			}
		}
	}

	return {
		/**
		 * Reads. Throws `Refusal` (4xx) or `Failure`.
		 * @param {string} path @param {{signal?: AbortSignal, accept?: string}} [settings] `accept`: another type than JSON.
		 * @returns {Promise<any>} The document; of another type its text.
		 */
		get(path, { signal, accept } = {}) {
			return carry('GET', path, undefined, null, signal, accept);
		},

		/**
		 * Carries out one intention. While it is under way, the same request again is the same intention, and so it is after an
		 * `UnknownOutcome`, a `Failure` or a reload; after an answer it is a new one.
		 * @param {'POST' | 'PATCH' | 'DELETE'} method @param {string} path @param {unknown} body
		 * @param {{label?: string, signal?: AbortSignal}} [settings]
		 * @returns {Promise<any>} The document. Throws `Refusal`, `Failure` or `UnknownOutcome`.
		 */
		send(method, path, body, { label, signal } = {}) {
			const id = identity(method, path, body);
			const under = running.get(id);
			if (under) return under;
			const intention = recall(id) ?? { key: newKey(), method, path, body, label, at: now() };
			keep(id, intention);
			const sent = carry(method, path, body, intention, signal).then(
				(document) => { forget(id); return document; },
				(error) => {
					// 401: the key is unused, and the same person may go on after signing in.
					if (error instanceof Refusal && error.status !== 401) forget(id);
					throw error;
				},
			).finally(() => running.delete(id));
			running.set(id, sent);
			return sent;
		},

		/** Intentions without an answer that are not under way, such as those from before a reload; oldest first. @returns {Intention[]} */
		unanswered() {
			/** @type {Map<string, Intention>} */
			const found = new Map();
			const ids = [...kept.keys()];
			for (let n = 0; storage && n < storage.length; n += 1) {
				const name = storage.key(n);
				if (name?.startsWith(PREFIX)) ids.push(name.slice(PREFIX.length));
			}
			for (const id of ids) {
				const intention = running.has(id) ? null : recall(id);
				if (intention) found.set(id, intention);
			}
			return [...found.values()].sort((a, b) => a.at - b.at);
		},

		/** Sends such an intention again, under its key. @param {Intention} intention @returns {Promise<any>} */
		resume(intention) {
			return this.send(/** @type {any} */ (intention.method), intention.path, intention.body, { label: intention.label });
		},

		/** Gives an intention up: what became of it is then nobody's question any more. @param {Intention} intention */
		abandon(intention) {
			forget(identity(intention.method, intention.path, intention.body));
		},

		/** Gives all up, for a sign-out. */
		abandonAll() {
			for (const intention of this.unanswered()) this.abandon(intention);
		},
	};
}
