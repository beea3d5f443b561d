import { find } from './element.ts';

const SVG = 'http://www.w3.org/2000/svg';
/** Seconds that are kept and drawn. */
const SECONDS = 120;
const [WIDTH, HEIGHT] = [600, 120];
const STEP = WIDTH / SECONDS;

interface Sample {
  updates: number;
  isOpen: boolean;
  /** null if it is not known. */
  subscribers: number | null;
}

/** Updates per second, the number of subscribers, and when this page was connected: the last two minutes. */
export class Traffic {
  readonly #section = find('traffic', HTMLElement);
  readonly #plot = find('plot', HTMLElement);
  readonly #summary = find('traffic-summary', HTMLElement);
  readonly #samples: Sample[] = [];
  #now: Sample = { updates: 0, isOpen: false, subscribers: null };

  constructor() {
    this.#draw();
    setInterval(() => this.#tick(), 1_000);
  }

  /** The section appears with the first update, because an empty chart is useless. */
  count(): void {
    this.#now.updates += 1;
    this.#section.hidden = false;
  }

  connected(isOpen: boolean): void {
    this.#now.isOpen = isOpen;
  }

  subscribers(count: number | null): void {
    this.#now.subscribers = count;
  }

  #tick(): void {
    this.#samples.push(this.#now);
    if (this.#samples.length > SECONDS) this.#samples.shift();
    this.#now = { ...this.#now, updates: 0 };
    if (!document.hidden) this.#draw();
  }

  #draw(): void {
    const samples = this.#samples;
    const peak = Math.max(1, ...samples.map(({ updates }) => updates));
    const most = Math.max(1, ...samples.map(({ subscribers }) => subscribers ?? 0));
    const begin = SECONDS - samples.length;
    const shapes: SVGElement[] = [
      shape('line', { class: 'axis', x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
    ];
    samples.forEach(({ updates, isOpen }, index) => {
      const x = (begin + index) * STEP;
      if (!isOpen)
        shapes.push(shape('rect', { class: 'away', x, y: 0, width: STEP + 0.1, height: HEIGHT }));
      if (updates === 0) return;
      const height = (updates / peak) * (HEIGHT - 10);
      shapes.push(shape('rect', { class: 'rate', x, y: HEIGHT - height, width: STEP - 1, height }));
    });
    const points = samples.flatMap(({ subscribers }, index) =>
      subscribers === null
        ? []
        : [`${(begin + index + 0.5) * STEP},${HEIGHT - (subscribers / most) * (HEIGHT - 10)}`],
    );
    shapes.push(shape('polyline', { class: 'subscribers', points: points.join(' ') }));
    this.#plot.querySelector('svg')?.replaceChildren(...shapes);
    this.#summarise(peak, samples.at(-1));
  }

  #summarise(peak: number, last: Sample | undefined): void {
    const total = this.#samples.reduce((sum, { updates }) => sum + updates, 0);
    const away = this.#samples.filter(({ isOpen }) => !isOpen).length;
    const subscribers = last?.subscribers ?? null;
    this.#summary.textContent = [
      `${total} ${total === 1 ? 'update' : 'updates'} in the last ${this.#samples.length} s`,
      total === 0 ? '' : `at most ${peak} per second`,
      subscribers === null
        ? ''
        : `${subscribers} ${subscribers === 1 ? 'subscription' : 'subscriptions'}`,
      away === 0 ? '' : `not connected for ${away} s`,
    ]
      .filter((text) => text !== '')
      .join(' · ');
  }
}

function shape(name: string, attributes: Readonly<Record<string, string | number>>): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}
