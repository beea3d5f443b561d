import type { Update } from '../client/events.ts';
import { copyButton, shortId, element, find } from './element.ts';
import { dataView, oneLine } from './json-view.ts';
import { setNewest } from '../kernel/collections.ts';

/** Entries that are kept; the oldest are removed first. */
const MAX_ENTRIES = 500;
/** Entries that are drawn in one frame, so that a burst does not block the page. */
const MAX_DRAWN = 25;
/** Publications of this page whose topics are remembered. */
const MAX_OWN = 500;
/** Types that the filter offers. */
const MAX_TYPES = 100;
/** How often a screen reader announces new updates, in milliseconds. */
const ANNOUNCE_EVERY_MS = 5_000;

interface Entry {
  readonly item: HTMLElement;
  /** null for a notice about the connection, which is never filtered out. */
  readonly type: string | null;
  readonly text: string;
}

/** An entry that has arrived and is not drawn yet. */
interface Arrival {
  readonly at: Date;
  readonly what: Update | Notice;
}

/** An event of the connection. */
interface Notice {
  readonly content: readonly (Node | string)[];
  readonly kind: 'good' | 'warn' | 'bad' | 'muted';
}

/** The live list: newest first, bounded, filtered, and unchanged while it is paused. */
export class UpdateList {
  readonly #list = find('events', HTMLOListElement);
  readonly #empty = find('empty', HTMLElement);
  readonly #count = find('count', HTMLElement);
  readonly #notice = find('told', HTMLElement);
  readonly #pause = find('pause', HTMLButtonElement);
  readonly #text = find('filter', HTMLInputElement);
  readonly #type = find('filter-type', HTMLSelectElement);
  readonly #entries: Entry[] = [];
  /** In the order of arrival; at most as many as are kept. */
  readonly #waiting: Arrival[] = [];
  /** Id of a publication of this page → its topics, which a stream does not contain. */
  readonly #topics = new Map<string, readonly string[]>();
  /** The subscribed topic, if there is only one. */
  #soleTopic: string | null = null;
  #isPaused = false;
  #isScheduled = false;
  #unannounced = 0;

  constructor() {
    this.#pause.addEventListener('click', () => this.pause(!this.#isPaused));
    find('clear', HTMLButtonElement).addEventListener('click', () => this.clear());
    this.#text.addEventListener('input', () => this.#filter());
    this.#type.addEventListener('change', () => this.#filter());
    setInterval(() => this.#announce(), ANNOUNCE_EVERY_MS);
  }

  subscribedTo(matchers: readonly { readonly match: string; readonly matchType: string }[]): void {
    const [only] = matchers;
    const isSole = matchers.length === 1 && only?.matchType === 'exact' && only.match !== '*';
    this.#soleTopic = isSole ? only.match : null;
  }

  published(id: string, topics: readonly string[]): void {
    setNewest(this.#topics, id, topics, MAX_OWN);
    // The update may have arrived before the response to its publication.
    const shown = this.#entries.find(({ item }) => item.dataset['id'] === id);
    if (shown !== undefined) this.#nameTopics(shown.item, topics);
    this.#filter();
  }

  add(update: Update): void {
    this.#arrive(update);
  }

  /** Adds a notice at its position among the updates. */
  notice(kind: Notice['kind'], ...content: Notice['content']): void {
    this.#arrive({ content, kind });
  }

  pause(isPaused: boolean): void {
    this.#isPaused = isPaused;
    this.#pause.setAttribute('aria-pressed', String(isPaused));
    this.#summarise();
    this.#schedule();
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  clear(): void {
    for (const { item } of this.#entries.splice(0)) item.remove();
    this.#waiting.length = 0;
    this.#summarise();
  }

  #arrive(what: Update | Notice): void {
    this.#waiting.push({ at: new Date(), what });
    // If drawn, it would already have been removed as the oldest.
    if (this.#waiting.length > MAX_ENTRIES) this.#waiting.shift();
    if (this.#isPaused) this.#summarise();
    this.#schedule();
  }

  /** Draws the waiting entries, some in each frame; a hidden page has no frames. */
  #schedule(): void {
    if (this.#isScheduled || this.#isPaused || this.#waiting.length === 0) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      if (this.#isPaused) return;
      for (const { at, what } of this.#waiting.splice(0, MAX_DRAWN)) {
        if ('kind' in what) this.#showNotice(what, at);
        else this.#show(what, at);
      }
      this.#summarise();
      this.#schedule();
    });
  }

  #showNotice({ content, kind }: Notice, at: Date): void {
    const item = element('li', { class: `notice ${kind}` }, timeOf(at), ' ', ...content);
    this.#insert({ item, type: null, text: '' });
  }

  #show(update: Update, at: Date): void {
    const { id, type, data } = update;
    const line = element('span', { class: 'line' }, oneLine(data));
    const badge = element('span', { class: 'badge', 'data-type': type }, type);
    const row = element('details', { class: 'update' });
    row.append(element('summary', {}, timeOf(at), badge, line));
    // The contents of a closed row are created when it is first opened.
    row.addEventListener('toggle', () => row.append(this.#contents(update, row)), { once: true });
    const item = element('li', { 'data-id': id }, row);
    const topics = this.#topics.get(id) ?? (this.#soleTopic === null ? [] : [this.#soleTopic]);
    this.#nameTopics(item, topics);
    this.#unannounced += 1;
    this.#offerType(type);
    this.#insert({ item, type, text: `${id}\n${data}` });
  }

  #contents({ id, data }: Update, row: HTMLElement): HTMLElement {
    const facts = element('dl', { class: 'facts' });
    const topics = row.querySelector('.topics')?.textContent ?? '';
    if (topics !== '') facts.append(element('dt', {}, 'Topics'), element('dd', {}, topics));
    if (id !== '') {
      const shown = element('code', { title: id }, shortId(id));
      const copied = copyButton('Copy id', () => id, shown);
      facts.append(element('dt', {}, 'Id'), element('dd', {}, shown, copied));
    }
    return element('div', {}, facts, dataView(data));
  }

  #nameTopics(item: HTMLElement, topics: readonly string[]): void {
    if (topics.length === 0 || item.querySelector('.topics') !== null) return;
    const named = element('span', { class: 'topics' }, topics.join(' · '));
    item.querySelector('.badge')?.after(named);
  }

  #insert(entry: Entry): void {
    this.#entries.unshift(entry);
    entry.item.hidden = !this.#isWanted(entry);
    this.#list.prepend(entry.item);
    while (this.#entries.length > MAX_ENTRIES) this.#entries.pop()?.item.remove();
  }

  #offerType(type: string): void {
    if ([...this.#type.options].some(({ value }) => value === type)) return;
    if (this.#type.options.length <= MAX_TYPES) this.#type.add(new Option(type, type));
  }

  #filter(): void {
    for (const entry of this.#entries) entry.item.hidden = !this.#isWanted(entry);
    this.#summarise();
  }

  #isWanted({ item, type, text }: Entry): boolean {
    if (type === null) return true;
    if (this.#type.value !== '' && this.#type.value !== type) return false;
    const wanted = this.#text.value.trim().toLowerCase();
    const topics = item.querySelector('.topics')?.textContent ?? '';
    return wanted === '' || `${topics}\n${text}`.toLowerCase().includes(wanted);
  }

  #summarise(): void {
    const updates = this.#entries.filter(({ type }) => type !== null);
    const shown = updates.filter(({ item }) => !item.hidden).length;
    const hidden = shown === updates.length ? '' : `, ${updates.length - shown} filtered out`;
    const full = this.#entries.length === MAX_ENTRIES ? `, the newest ${MAX_ENTRIES} are kept` : '';
    const held = this.#isPaused ? `, ${this.#waiting.length} held back` : '';
    this.#count.textContent = `${shown} shown${hidden}${held}${full}`;
    this.#empty.hidden = this.#entries.length > 0;
  }

  #announce(): void {
    if (this.#unannounced === 0) return;
    this.#notice.textContent = `${this.#unannounced} new ${this.#unannounced === 1 ? 'update' : 'updates'}`;
    this.#unannounced = 0;
  }
}

function timeOf(at: Date): HTMLElement {
  const milliseconds = element(
    'span',
    { class: 'ms' },
    `.${String(at.getMilliseconds()).padStart(3, '0')}`,
  );
  return element(
    'time',
    { datetime: at.toISOString() },
    at.toTimeString().slice(0, 8),
    milliseconds,
  );
}
