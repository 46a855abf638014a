// Small charts as SVG. Each says in words what it shows; colours come from the stylesheet.
import { h, number, svg } from './ui.js';

/** A bar of a limit: what is used, and what would be added. */
export function bar(used, added, limit, label) {
	const part = (value) => (limit > 0 ? Math.max(0, Math.min(100, (value / limit) * 100)) : value > 0 ? 100 : 0);
	const end = part(used);
	return svg('svg', { class: 'bar', viewBox: '0 0 100 4', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
		svg('rect', { class: 'track', width: 100, height: 4 }),
		svg('rect', { class: used > limit ? 'over' : 'used', width: end, height: 4 }),
		svg('rect', { class: used + added > limit ? 'over' : 'added', x: end, width: Math.max(0, part(used + added) - end), height: 4 }));
}

/**
 * Delivered and failed attempts as stacked columns. rows: [{at: ms, delivered, failed}], oldest first; `unit` names a column's
 * span ('minute').
 */
export function columns(rows, unit, { small = false } = {}) {
	const [width, height] = small ? [120, 24] : [600, 96];
	const most = Math.max(1, ...rows.map((row) => row.delivered + row.failed));
	const step = width / rows.length;
	const y = (value) => (value / most) * (height - 2);
	const total = (name) => rows.reduce((sum, row) => sum + row[name], 0);
	const label = `Per ${unit}: ${number(total('delivered'))} delivered and ${number(total('failed'))} failed in all, at most ${number(most)} attempts`;
	const drawn = svg('svg', { class: small ? 'chart small' : 'chart', viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
		svg('line', { class: 'axis', x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
		rows.flatMap((row, n) => {
			const [delivered, failed] = [y(row.delivered), y(row.failed)];
			const x = n * step + step * 0.1;
			const made = [];
			if (row.delivered) made.push(svg('rect', { class: 'delivered', x, width: step * 0.8, y: height - 1 - delivered, height: delivered }));
			if (row.failed) made.push(svg('rect', { class: 'failed', x, width: step * 0.8, y: height - 1 - delivered - failed, height: failed }));
			if (made.length && !small) made[0].append(svg('title', {}, `${new Date(row.at).toLocaleTimeString()}: ${number(row.delivered)} delivered, ${number(row.failed)} failed`));
			return made;
		}));
	if (small) return drawn;
	const times = [rows[0], rows[Math.floor(rows.length / 2)]].map((row) => new Date(row.at).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit' }));
	return h('figure.charted', h('div.scale.muted.small', h('span', number(most)), h('span', `per ${unit}`)), drawn, h('div.scale.muted.small', h('span', times[0]), h('span', times[1]), h('span', 'now')));
}
