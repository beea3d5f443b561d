import { shortId, element, find } from './element.ts';

/** Subscriptions that are listed; the others are counted. */
const MAX_LISTED = 100;
/** How often the list is loaded again, in milliseconds, while the page is visible and the token allows it. */
const REFRESH_MS = 5_000;
/**
 * Largest number of subscriptions for which the list is refreshed automatically, because each response
 * contains the whole list.
 */
const MAX_WATCHED = 1_000;

interface Subscription {
  readonly subscriber: string;
  readonly match: string;
  readonly match_type: string;
  readonly payload?: unknown;
}

export interface SubscribersOptions {
  /** URL of the hub, without a trailing slash. */
  readonly hub: string;
  readonly token: () => string;
  /** Called with the number of subscriptions; null: not known. */
  readonly count: (count: number | null) => void;
}

/** The current subscriptions from the subscription API, as far as the token allows. */
export class Subscribers {
  readonly #about = find('subscribers-about', HTMLElement);
  readonly #table = find('subscribers', HTMLTableElement);
  readonly #options: SubscribersOptions;
  /** Whether the list is refreshed automatically. */
  #isWatched = false;

  constructor(options: SubscribersOptions) {
    this.#options = options;
    find('refresh', HTMLButtonElement).addEventListener('click', () => void this.refresh());
    setInterval(() => {
      if (this.#isWatched && !document.hidden) void this.refresh();
    }, REFRESH_MS);
  }

  async refresh(): Promise<void> {
    const { hub, token, count } = this.#options;
    const bearer = token();
    const headers = new Headers(bearer === '' ? {} : { Authorization: `Bearer ${bearer}` });
    try {
      // The browser's cache revalidates with the entity tag, so an unchanged list costs almost nothing.
      const answer = await fetch(`${hub}/subscriptions`, { headers, cache: 'no-cache' });
      if (answer.ok) {
        const { subscriptions } = (await answer.json()) as {
          readonly subscriptions: readonly Subscription[];
        };
        this.#isWatched = subscriptions.length <= MAX_WATCHED;
        this.#show(subscriptions);
        count(subscriptions.length);
        return;
      }
      this.#refused(`${answer.status} ${(await answer.text()).trim()}`);
    } catch (error) {
      this.#refused(error instanceof Error ? error.message : String(error));
    }
    count(null);
  }

  #refused(why: string): void {
    this.#isWatched = false;
    this.#table.hidden = true;
    const { pathname } = new URL(`${this.#options.hub}/subscriptions`);
    this.#about.textContent = `Not available (${why}). Paste a token with a subscribe grant that covers ${pathname}.`;
  }

  #show(subscriptions: readonly Subscription[]): void {
    const rest = subscriptions.length - MAX_LISTED;
    const what = subscriptions.length === 1 ? 'subscription' : 'subscriptions';
    this.#about.textContent = `${subscriptions.length} ${what}${rest > 0 ? `, the first ${MAX_LISTED} are shown` : ''}${this.#isWatched ? '' : '; too many to refresh automatically'}`;
    this.#table.hidden = subscriptions.length === 0;
    this.#table.tBodies[0]?.replaceChildren(
      ...subscriptions
        .slice(0, MAX_LISTED)
        .map(({ subscriber, match, match_type, payload }) =>
          element(
            'tr',
            {},
            element(
              'td',
              {},
              element('code', {}, match),
              match_type === 'exact' ? '' : ' (pattern)',
            ),
            element('td', {}, element('code', { title: subscriber }, shortId(subscriber))),
            element(
              'td',
              {},
              element('code', {}, payload === undefined ? '' : JSON.stringify(payload)),
            ),
          ),
        ),
    );
  }
}
