import { isTaken } from '../runtime/open-ports.ts';
import type { GlobalOptions, ListenAddress } from '../config/config.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { type AdminControls, openAdmin, openMetrics } from '../runtime/admin.ts';
import type { AdminServer } from '../runtime/admin-server.ts';

type Options = Pick<GlobalOptions, 'admin' | 'metrics'>;

interface Port {
  /** Ports with equal keys need not be opened again. */
  readonly key: string;
  readonly wanted: ListenAddress;
  readonly server: AdminServer;
}

/** The admin API and the listener for metrics, across reloads. */
export class AdminPorts {
  readonly #controls: AdminControls;
  readonly #log: Logger;
  #ports: readonly Port[] = [];

  constructor(controls: AdminControls, log: Logger) {
    this.#controls = controls;
    this.#log = log;
  }

  /** The address of the admin API; null if it is off. */
  get adminAddress(): ListenAddress | null {
    return this.#ports.find(({ key }) => key.startsWith('admin'))?.server.address ?? null;
  }

  /**
   * Opens the ports of a configuration. If an old listener has one of these ports, the port is taken from it
   * now, and `discard` gives it back. Exactly one of the functions is called, once.
   *
   * @throws HubgateError `listen-failed`; nothing has changed then
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

  /** The ports that `prepare` would open, and those that would be closed. */
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

/** The kind of the port and its address. */
function textOf(key: string, { host, port }: ListenAddress): string {
  return `${key.split(' ', 1)[0]} ${host.includes(':') ? `[${host}]` : host}:${port}`;
}
