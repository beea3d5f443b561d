import { isTaken } from '../runtime/open-ports.ts';
import type { GlobalOptions, ListenAddress } from '../config/config.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { type AdminControls, openAdmin, openMetrics } from '../runtime/admin.ts';
import type { AdminServer } from '../runtime/admin-server.ts';

type Options = Pick<GlobalOptions, 'admin' | 'metrics'>;

interface Port {
  /** Equal for two that need not be opened again. */
  readonly key: string;
  readonly wanted: ListenAddress;
  readonly server: AdminServer;
}

/** The admin API and the listener for metrics, over reloads. */
export class AdminPorts {
  readonly #controls: AdminControls;
  readonly #log: Logger;
  #ports: readonly Port[] = [];

  constructor(controls: AdminControls, log: Logger) {
    this.#controls = controls;
    this.#log = log;
  }

  /** Where the admin API listens; null when it is off. */
  get adminAddress(): ListenAddress | null {
    return this.#ports.find(({ key }) => key.startsWith('admin'))?.server.address ?? null;
  }

  /**
   * Opens what a configuration wants. A port that one of the old listeners has is taken from it now
   * and given back by `discard`. One of the functions is called, once.
   *
   * @throws HubgateError `listen-failed`; all is as it was then
   */
  async prepare(options: Options): Promise<{ commit(): void; discard(): Promise<void> }> {
    const before = this.#ports;
    const after: Port[] = [];
    const suspended: Port[] = [];
    const discard = async (): Promise<void> => {
      await Promise.all(
        after.filter((one) => !before.includes(one)).map(({ server }) => server.close()),
      );
      for (const { server } of suspended) await this.#resume(server);
    };
    try {
      const wanted = this.#wanted(options);
      const leaving = before.filter(({ key }) => wanted.every((one) => one.key !== key));
      for (const { key, address, open } of wanted) {
        const present = before.find((one) => one.key === key);
        if (present !== undefined) after.push(present);
        else {
          const inTheWay = leaving.filter((one) => one.wanted.port === address.port);
          const server = await open().catch((error: unknown) => {
            if (inTheWay.length === 0 || !isTaken(error)) throw error;
            for (const one of inTheWay) one.server.suspend();
            suspended.push(...inTheWay);
            return open();
          });
          after.push({ key, wanted: address, server });
        }
      }
    } catch (error) {
      await discard();
      throw error;
    }
    return {
      commit: () => {
        this.#ports = after;
        for (const one of before) if (!after.includes(one)) void one.server.close();
      },
      discard,
    };
  }

  /** What `prepare` would open, and what would be closed then. */
  changes(options: Options): { readonly opened: string[]; readonly closed: string[] } {
    const wanted = this.#wanted(options);
    const missing = wanted.filter(({ key }) => this.#ports.every((one) => one.key !== key));
    const leaving = this.#ports.filter(({ key }) => wanted.every((one) => one.key !== key));
    return {
      opened: missing.map(({ key, address }) => textOf(key, address)),
      closed: leaving.map(({ key, wanted: address }) => textOf(key, address)),
    };
  }

  async close(): Promise<void> {
    await Promise.all(this.#ports.map(({ server }) => server.close()));
  }

  #wanted({ admin, metrics }: Options) {
    return [
      ...(admin === 'off'
        ? []
        : [
            {
              key: `admin ${JSON.stringify(admin)}`,
              address: admin,
              open: () => openAdmin(admin, this.#controls, this.#log),
            },
          ]),
      ...(metrics === 'off'
        ? []
        : [
            {
              key: `metrics ${JSON.stringify(metrics)}`,
              address: metrics,
              open: () => openMetrics(metrics, this.#controls, this.#log),
            },
          ]),
    ];
  }

  async #resume(server: AdminServer): Promise<void> {
    try {
      await server.resume();
    } catch (error) {
      this.#log.error('A port could not be opened again', { error: messageOf(error) });
    }
  }
}

/** Its kind, and where it is. */
function textOf(key: string, { host, port }: ListenAddress): string {
  return `${key.split(' ', 1)[0]} ${host.includes(':') ? `[${host}]` : host}:${port}`;
}
