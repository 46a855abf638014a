// Somebody else saved first: what you loaded, theirs and yours, side by side, and what is to be saved on top of theirs.
// The machine chooses only where there is nothing to choose: a field that one side alone has changed. A size run is one
// field in that sense: where both have changed it, each line that differs is a person's choice.
import { ago, button, buttons, dialog, h, muted } from './ui.js';

const same = (a, b) => (a ?? null) === (b ?? null);

/**
 * fields: [{name, label, show}]; lines: [{name, label, show}] of the size run. Each of base, theirs, yours maps names to values.
 * Returns rows that differ: {…field, group, base, theirs, yours, side: 'theirs' | 'yours' | 'same' | 'both'}; `both` is a choice.
 */
export function compare(fields, lines, base, theirs, yours) {
	const judge = (field, group) => {
		const [b, t, y] = [base[field.name], theirs[field.name], yours[field.name]];
		const [byThem, byYou] = [!same(b, t), !same(b, y)];
		if (!byThem && !byYou) return null;
		const side = byThem && byYou ? (same(t, y) ? 'same' : 'both') : byThem ? 'theirs' : 'yours';
		return { ...field, group, base: b, theirs: t, yours: y, side };
	};
	const run = lines.map((line) => judge(line, 'lines')).filter(Boolean);
	const touched = (side) => run.some((row) => row.side === side || row.side === 'both');
	if (touched('theirs') && touched('yours')) for (const row of run) if (row.side !== 'same') row.side = 'both';
	return [...fields.map((field) => judge(field, null)).filter(Boolean), ...run];
}

/**
 * Shows the rows and resolves with the values to save, by name: yours where they are kept; or 'theirs': drop yours; or
 * undefined: go on editing. `saved`: {by, at, version}.
 */
export function resolve(title, rows, saved) {
	const open = rows.filter((row) => row.side === 'both');
	const disjoint = open.length === 0;
	return dialog(title, (close) => {
		const chosen = new Map();
		const save = button(disjoint ? 'Rebase & save' : 'Save what was chosen', () => {
			const kept = rows.filter((row) => row.side === 'yours' || (row.side === 'both' && chosen.get(row) === 'yours'));
			close(Object.fromEntries(kept.map((row) => [row.name, row.yours ?? null])));
		}, 'main', { disabled: !disjoint });
		const left = h('p.muted', { role: 'status' });
		const tellLeft = () => { left.textContent = disjoint ? 'You changed different things. Yours is saved on top of theirs; nothing of theirs is lost.'
			: chosen.size < open.length ? `You both changed the same. Choose ${open.length - chosen.size} more; nothing is chosen for you.` : 'Everything is chosen.'; };
		tellLeft();
		const choice = (row, side, value) => {
			const text = row.show(value);
			const isKept = row.side === side || row.side === 'same';
			if (row.side !== 'both') return h('td', { class: isKept ? 'kept' : null, 'data-label': side === 'theirs' ? 'Theirs' : 'Yours' }, text, isKept ? muted(side === 'yours' || row.side === 'same' ? ' is saved' : ' stays') : null);
			const radio = h('input', { type: 'radio', name: `choice-${rows.indexOf(row)}`, onchange: () => {
				chosen.set(row, side);
				for (const cell of radio.closest('tr').querySelectorAll('td')) cell.classList.toggle('kept', cell.contains(radio));
				save.disabled = chosen.size < open.length;
				tellLeft();
			} });
			return h('td', { 'data-label': side === 'theirs' ? 'Theirs' : 'Yours' }, h('label.choice', radio, h('span', h('span.hidden', `${row.label}, ${side}: `), text)));
		};
		return [
			h('p', h('strong', `${saved.by ?? 'Somebody'} saved ${ago(saved.at)}`), muted(` (version ${saved.version})`), ', after you had opened this.'),
			h('div.table', h('table.compare', h('caption.hidden', 'What differs'),
				h('thead', h('tr', ['', 'You loaded', 'Theirs', 'Yours'].map((text) => h('th', { scope: 'col' }, text || h('span.hidden', 'Field'))))),
				h('tbody', rows.map((row) => h('tr', { class: row.side === 'both' ? 'both' : null }, h('th', { scope: 'row' }, row.label),
					h('td', { 'data-label': 'You loaded' }, row.show(row.base)), choice(row, 'theirs', row.theirs), choice(row, 'yours', row.yours)))))),
			left, buttons(button('Keep editing', () => close(undefined)), button('Drop mine', () => close('theirs'), 'danger'), save),
		];
	}, 'wide');
}
