// How the outbox is doing: backlog, age, rate and failures of the last hour and day, in all and for each destination.
import { columns } from './chart.js';
import { badge, count, duration, h, heading, link, nothing, number, panel, poll, rowLink, select, table, time } from './ui.js';

const LOOK_EVERY_MS = 10_000;

/** Rows of a chart, from the counts of [delivered, failed] that end now. */
function rows(counts, stepMs, now) {
	return counts.map(([delivered, failed], n) => ({ at: now - (counts.length - n) * stepMs, delivered, failed }));
}
const tile = (title, value, note, tone) => h('div', { class: `tile ${tone ?? ''}` }, h('p.muted', title), h('p.big', value), note ? h('p.muted.small', note) : null);

export async function show(ctx) {
	ctx.title('Overview');
	const span = select([['hour', 'Last hour'], ['day', 'Last day']], ctx.query.get('span') ?? 'hour', { 'aria-label': 'Span' });
	const place = h('div');
	const load = async () => {
		const [health, rates] = await Promise.all([ctx.get('/admin/health'), ctx.get('/admin/health/rates')]);
		const now = Date.parse(rates.at);
		const hour = span.value === 'hour';
		const [unit, stepMs] = hour ? ['minute', 60_000] : ['hour', 3_600_000];
		const of = (id) => rates.destinations.find((found) => found.id === id);
		const counts = (found) => (hour ? found.minutes : found.hours);
		const all = rates.destinations.reduce((sum, found) => counts(found).map(([d, f], n) => [d + (sum[n]?.[0] ?? 0), f + (sum[n]?.[1] ?? 0)]), []);
		const failed = all.reduce((sum, [, f]) => sum + f, 0);
		const delivered = all.reduce((sum, [d]) => sum + d, 0);
		place.replaceChildren(
			h('div.tiles',
				tile('Waiting', number(health.backlog), health.backlog ? `the oldest for ${duration(health.oldestPendingAgeSeconds)}` : 'everything is out', health.oldestPendingAgeSeconds > 300 ? 'warn' : ''),
				tile('Dead letters', number(health.deadLetters), health.deadLetters ? link('#/dead-letters', 'Look at them') : 'none', health.deadLetters ? 'bad' : ''),
				tile(`Delivered, ${hour ? 'last hour' : 'last day'}`, number(delivered), delivered + failed ? `${((delivered / (delivered + failed)) * 100).toFixed(1)} % of ${count(delivered + failed, 'attempt')}` : 'no attempts'),
				tile(`Failed, ${hour ? 'last hour' : 'last day'}`, number(failed), failed ? 'tried again by themselves' : 'none', failed > delivered ? 'bad' : '')),
			panel('Attempts', all.length ? [columns(rows(all, stepMs, now), unit), h('p.legend.small', h('span.key.delivered'), 'delivered ', h('span.key.failed'), 'failed')] : nothing('No attempts yet')),
			health.destinations.length ? table('Destinations', [
				['Destination', (d) => rowLink(`#/events?destination=${d.id}`, d.name), 'grow'],
				['State', (d) => (d.breakerOpenUntil ? badge('failing', 'bad') : badge(d.state))],
				[hour ? 'Last hour' : 'Last day', (d) => of(d.id) && columns(rows(counts(of(d.id)), stepMs, now), unit, { small: true })],
				['Waiting', (d) => number(d.backlog), 'num'],
				['Oldest', (d) => d.backlog ? duration(d.oldestPendingAgeSeconds) : null, 'num'],
				['Dead', (d) => (d.deadLetters ? link(`#/dead-letters?destination=${d.id}`, number(d.deadLetters)) : number(0)), 'num'],
				['Last success', (d) => d.lastSuccessAt && time(d.lastSuccessAt)],
				['Last failure', (d) => d.lastFailureAt && [time(d.lastFailureAt), h('div.muted.small.clip', { title: d.lastError ?? '' }, d.lastError ?? '')]],
			], health.destinations) : nothing('No destinations', 'Nobody is told of anything yet.', link('#/destinations', 'Set one up', 'button main')));
	};
	span.addEventListener('change', () => { ctx.setQuery({ span: span.value }); load(); });
	ctx.at.append(heading('Overview', span), place);
	await load();
	poll(ctx, LOOK_EVERY_MS, load);
}
