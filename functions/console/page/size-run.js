// Codes and sizes: HARBOR-NVY-M is size M of HARBOR-NVY. A code whose last part is no size stands for itself.

const LETTERS = ['XXXS', 'XXS', '2XS', 'XS', 'S', 'SM', 'M', 'ML', 'L', 'XL', 'XXL', '2XL', 'XXXL', '3XL', '4XL', '5XL', 'OS', 'ONE'];
const ORDER = new Map(LETTERS.map((size, place) => [size, place]));

/** {run, size}: size is '' where the code names none. */
export function split(code) {
	const at = Math.max(code.lastIndexOf('-'), code.lastIndexOf('/'));
	const size = code.slice(at + 1);
	const known = at > 0 && (ORDER.has(size.toUpperCase()) || /^\d{1,3}([.]5)?$/.test(size));
	return known ? { run: code.slice(0, at), size } : { run: code, size: '' };
}
const place = (size) => ORDER.get(size.toUpperCase()) ?? (Number(size) || 0) + 100;
export const bySize = (a, b) => place(split(a.code).size) - place(split(b.code).size) || a.code.localeCompare(b.code);

/** Items with a `code`, as runs in the order in which they come: [{run, items}], sizes from small to large. */
export function runs(items) {
	const found = new Map();
	for (const item of items) {
		const { run } = split(item.code);
		if (!found.has(run)) found.set(run, []);
		found.get(run).push(item);
	}
	return [...found].map(([run, members]) => ({ run, items: [...members].sort(bySize) }));
}

/**
 * Reads what was copied from a spreadsheet: rows of code and quantity, or a grid whose first row holds sizes and whose first
 * column holds runs. Returns {lines: [{code, qty}], wrong: [text]}; quantities may be grouped (1,200), empty cells count as none.
 */
export function readPaste(text) {
	const rows = text.split(/\r?\n/).map((row) => row.split(/\t|;|,(?!\d{3}\b)| {2,}/).map((cell) => cell.trim())).filter((cells) => cells.some(Boolean));
	const lines = new Map();
	const wrong = [];
	const add = (code, cell) => {
		const qty = Number(cell.replace(/[,\u202f\u00a0 ](?=\d{3}\b)/g, ''));
		if (!Number.isInteger(qty) || qty < 0 || qty > 1_000_000) wrong.push(`${code}: “${cell}” is no quantity`);
		else if (qty > 0) lines.set(code.toUpperCase(), { code, qty: (lines.get(code.toUpperCase())?.qty ?? 0) + qty });
	};
	const head = rows[0] ?? [];
	const isGrid = head.length > 2 && head.slice(1).filter(Boolean).every((cell) => split(`X-${cell}`).size !== '');
	for (const cells of isGrid ? rows.slice(1) : rows) {
		const [code, ...values] = cells;
		if (!code) { wrong.push(`A row without a code: ${cells.join(' ')}`); continue; }
		if (isGrid) values.forEach((cell, n) => { if (cell && head[n + 1]) add(`${code}-${head[n + 1]}`, cell); });
		else if (values[0] === undefined || values[0] === '') wrong.push(`${code}: no quantity`);
		else if (!(rows.indexOf(cells) === 0 && !/\d/.test(values[0]))) add(code, values[0]); // else the sheet's own heading
	}
	return { lines: [...lines.values()], wrong };
}

/** At most this many codes are looked up for one paste. */
export const PASTE_MOST = 500;
/** The SKUs of these codes, by upper-case code; one look-up finds a whole run. */
export async function findSkus(client, codes) {
	const found = new Map();
	for (const run of new Set(codes.map((code) => split(code).run))) {
		const missing = () => codes.some((code) => split(code).run === run && !found.has(code.toUpperCase()));
		let after = null;
		do {
			const page = await client.get(`/skus?q=${encodeURIComponent(run)}&limit=200${after ? `&after=${after}` : ''}`);
			for (const sku of page.items) found.set(sku.code.toUpperCase(), sku);
			after = page.next;
		} while (after && missing());
	}
	return found;
}
