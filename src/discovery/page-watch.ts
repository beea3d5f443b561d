// While somebody follows a page, the gateway asks the app for it at intervals, once however many follow. Each
// process looks once when its first follower comes, so that it knows what its followers see. After that only
// the elected process looks (`hub/election.ts`). A process that takes over compares with what it has seen
// itself. So a change between two processes is announced, if need be twice, and never missed.

import type { ResponseHead } from '../http/exchange.ts';
import { outcomeStatus } from '../http/request-variables.ts';
import { setNewest } from '../kernel/collections.ts';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import type { Followers, WatchDuty } from './announced-hub.ts';
import { type PageState, readAnswer, type Remover, validatorsOf } from './page-state.ts';
import { WatchExchange } from './watch-exchange.ts';

/** Pages that a site watches at a time, in each process. Further pages wait until others have no followers. */
export const MAX_WATCHED = 1_000;
/** Requests to the app at a time, of a site in each process. */
export const MAX_PARALLEL_LOOKS = 4;
/** Looks without a change after which the interval doubles, and the largest multiple of the interval. */
export const QUIET_LOOKS = 100;
export const MAX_BACKOFF = 8;
/** The part of the interval by which a look may come earlier or later. */
const JITTER = 0.15;
/** How long the gateway waits for the app. */
const LOOK_TIMEOUT_MS = 30_000;
/** How long a page that is not public is left alone. */
const UNFIT_MS = 600_000;
/** How long the state of a page without followers counts as known, so that a reload of a tab misses nothing. */
const KNOWN_MS = 60_000;
/** States that are known at a time. */
const MAX_STATES = 2 * MAX_WATCHED;
/** When pages for which there was no room are looked for again. */
const RESCAN_MS = 60_000;
/** Cost of finding out whether a followed topic is a page to watch, in steps. */
const FIND_STEPS = 1_000;

/** How a page is watched. */
export interface WatchRule {
  readonly intervalMs: number;
  readonly ignore: readonly Remover[];
  /** Announces that the page has changed. Resolves to whether the update is stored, or will be. */
  announce(exchange: WatchExchange, head: ResponseHead, body: Buffer | null): Promise<boolean>;
}

/** A page that a followed topic names. */
export interface WatchedPage {
  /** Equal for topics that name the same page. */
  readonly key: string;
  readonly url: URL;
  /** Path and query in their canonical form. */
  readonly target: string;
  readonly rule: WatchRule;
}

/**
 * The states of pages, which outlive a configuration. The oldest comes first. Each is known until a monotonic
 * time: without limit while the page has followers.
 */
export type PageStates = Map<string, { readonly state: PageState; readonly untilMs: number }>;

export interface PageWatchOptions {
  readonly followers: Followers;
  /** The page of a topic; null if it is not a page to watch. */
  readonly pageOf: (topic: string) => WatchedPage | null;
  /** Responds to a request; never rejects. */
  readonly ask: (exchange: WatchExchange) => Promise<void>;
  readonly states: PageStates;
  readonly personalFields: readonly string[];
  readonly scheduler: Scheduler;
  readonly clock: Clock;
  /** Returns a number from 0 up to 1. */
  readonly random: () => number;
  readonly log: Logger;
}

interface Watched extends WatchedPage {
  readonly followed: Set<string>;
  readonly duty: WatchDuty;
  cancel: () => void;
  /** Looks without a change, and failed looks, in a row. */
  quiet: number;
  failures: number;
  /** It is not public, or cannot be compared. */
  isUnfit: boolean;
}

/** Watches the followed pages of a site. */
export class PageWatch {
  readonly #options: PageWatchOptions;
  readonly #pages = new Map<string, Watched>();
  readonly #byTopic = new Map<string, Watched>();
  /** Pages whose time has come, in that order. */
  readonly #due = new Set<Watched>();
  readonly #asking = new Set<WatchExchange>();
  #looking = 0;
  #isClosed = false;
  /** Ends the observation, and the wait for room. */
  #unobserve: () => void = () => {};
  #cancelRescan: (() => void) | null = null;

  constructor(options: PageWatchOptions) {
    this.#options = options;
  }

  /** Begins with the pages that are followed already. */
  start(): void {
    if (this.#isClosed) return;
    this.#unobserve = this.#options.followers.observe({
      began: (topic) => this.#began(topic),
      ended: (topic) => this.#ended(topic),
    });
    this.#scan();
  }

  /** Stops; requests in progress are abandoned. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#unobserve();
    this.#cancelRescan?.();
    const pages = [...this.#pages.values()];
    for (const page of pages) this.#forget(page);
    for (const exchange of this.#asking) exchange.abandon();
    await Promise.all(pages.map(({ duty }) => duty.leave()));
  }

  #scan(): void {
    const { scheduler, followers } = this.#options;
    const began = (topic: string): void => this.#began(topic);
    const isClosed = (): boolean => this.#isClosed;
    void scheduler.compute(function* (budget) {
      for (const topic of followers.topics()) {
        if (isClosed()) return;
        if (budget.isSpent) yield;
        budget.spend(FIND_STEPS);
        began(topic);
      }
    });
  }

  /** Never throws, because a subscription is in the middle of being added. */
  #began(topic: string): void {
    try {
      this.#follow(topic);
    } catch (error) {
      this.#options.log.debug('A topic is not watched', { error: messageOf(error) });
    }
  }

  #follow(topic: string): void {
    if (this.#isClosed || this.#byTopic.has(topic)) return;
    const { pageOf, followers, states, clock, log } = this.#options;
    const { counts } = followers;
    const found = pageOf(topic);
    if (found === null) return;
    let page = this.#pages.get(found.key);
    if (page === undefined) {
      if (this.#pages.size >= MAX_WATCHED) {
        counts.refused += 1;
        if (this.#cancelRescan === null) {
          log.warn('Too many pages are followed to watch all of them', { watched: MAX_WATCHED });
        }
        this.#cancelRescan ??= clock.after(RESCAN_MS, () => {
          this.#cancelRescan = null;
          if (this.#pages.size < MAX_WATCHED) this.#scan();
        });
        return;
      }
      page = {
        ...found,
        followed: new Set(),
        duty: followers.standFor(found.key),
        cancel: () => {},
        quiet: 0,
        failures: 0,
        isUnfit: false,
      };
      const { untilMs = 0 } = states.get(found.key) ?? {};
      if (untilMs < clock.monotonic()) states.delete(found.key);
      this.#pages.set(found.key, page);
      counts.watched += 1;
      this.#queue(page);
    }
    page.followed.add(topic);
    this.#byTopic.set(topic, page);
  }

  #ended(topic: string): void {
    const page = this.#byTopic.get(topic);
    if (page === undefined) return;
    this.#byTopic.delete(topic);
    page.followed.delete(topic);
    if (page.followed.size > 0) return;
    this.#forget(page);
    void page.duty.leave();
  }

  #forget(page: Watched): void {
    const { states, followers, clock } = this.#options;
    page.cancel();
    this.#due.delete(page);
    if (!this.#pages.delete(page.key)) return;
    followers.counts.watched -= 1;
    const known = states.get(page.key);
    if (known === undefined) return;
    states.set(page.key, { ...known, untilMs: clock.monotonic() + KNOWN_MS });
  }

  #queue(page: Watched): void {
    this.#due.add(page);
    this.#next();
  }

  #next(): void {
    for (const page of this.#due) {
      if (this.#looking >= MAX_PARALLEL_LOOKS) return;
      this.#due.delete(page);
      this.#looking += 1;
      void this.#look(page).finally(() => {
        this.#looking -= 1;
        if (this.#pages.get(page.key) === page) {
          page.cancel = this.#options.clock.after(this.#delay(page), () => this.#queue(page));
        }
        this.#next();
      });
    }
  }

  #delay({ rule, quiet, failures, isUnfit }: Watched): number {
    if (isUnfit) return UNFIT_MS;
    const doublings = Math.max(Math.floor(quiet / QUIET_LOOKS), failures);
    const factor = Math.min(MAX_BACKOFF, 2 ** doublings);
    return rule.intervalMs * factor * (1 - JITTER + 2 * JITTER * this.#options.random());
  }

  /** Never rejects. */
  async #look(page: Watched): Promise<void> {
    const { states, followers, log } = this.#options;
    try {
      const known = states.get(page.key)?.state ?? null;
      // What the followers of this process see is unknown before its first look.
      if (known !== null && !(await page.duty.isElected())) return;
      await this.#ask(page, known);
    } catch (error) {
      page.failures += 1;
      followers.counts.failed += 1;
      log.debug('A page could not be watched', {
        path: page.url.pathname,
        error: messageOf(error),
      });
    }
  }

  async #ask(page: Watched, known: PageState | null): Promise<void> {
    const { ask, scheduler, personalFields, followers, clock, log } = this.#options;
    const { counts } = followers;
    const exchange = new WatchExchange(page.url, page.target, log, validatorsOf(known));
    const cancel = clock.after(LOOK_TIMEOUT_MS, () => exchange.abandon());
    this.#asking.add(exchange);
    try {
      void ask(exchange);
      const sent = await exchange.answer;
      if (this.#isClosed) return;
      if (sent === null) return this.#failed(page);
      // The page of an error is not the page that is watched.
      const answer = {
        ...sent,
        head: { ...sent.head, status: outcomeStatus(exchange, sent.head) },
      };
      const { ignore } = page.rule;
      const verdict = await scheduler.compute((budget) =>
        readAnswer(answer, known, ignore, personalFields, budget),
      );
      page.isUnfit = verdict.kind === 'unfit';
      switch (verdict.kind) {
        case 'failed':
          this.#failed(page);
          return;
        case 'unfit': {
          counts.unfit += 1;
          const { why } = verdict;
          log.info('A page is not watched', { path: page.url.pathname, why, forMs: UNFIT_MS });
          return;
        }
        case 'unchanged':
          this.#unchanged(page, known);
          return;
        case 'state':
          if (known?.mark === verdict.state.mark) return this.#unchanged(page, verdict.state);
          page.quiet = 0;
          page.failures = 0;
          if (known === null) counts.first += 1;
          else {
            counts.changed += 1;
            // If the hub cannot store it, the next look finds the same change.
            if (!(await page.rule.announce(exchange, answer.head, answer.body))) return;
          }
          this.#keep(page.key, verdict.state);
      }
    } finally {
      cancel();
      this.#asking.delete(exchange);
    }
  }

  #failed(page: Watched): void {
    this.#options.followers.counts.failed += 1;
    page.failures += 1;
  }

  #unchanged(page: Watched, state: PageState | null): void {
    this.#options.followers.counts.unchanged += 1;
    page.quiet += 1;
    page.failures = 0;
    if (state !== null) this.#keep(page.key, state);
  }

  #keep(key: string, state: PageState): void {
    const { states, clock } = this.#options;
    const untilMs = this.#pages.has(key) ? Infinity : clock.monotonic() + KNOWN_MS;
    setNewest(states, key, { state, untilMs }, MAX_STATES);
  }
}
