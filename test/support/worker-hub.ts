import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { connect } from 'node:net';
import type { HubKey, HubOptions } from '../../src/hub.ts';
import { freePort } from './free-port.ts';
import type { Owner } from './http.ts';
import type { LogLine } from './hub-server.ts';
import { cli, TestProcess } from './process.ts';
import { temporaryDirectory } from './temporary-directory.ts';

/** A hub of the built program, whose connections are shared among its workers. */
export interface WorkerHub {
  readonly origin: string;
  /** What all processes have logged so far. */
  readonly log: readonly LogLine[];
  stop(): Promise<void>;
}

/** Starts `hubgate run` with as many workers and a hub as it would be mounted with the options. */
export async function startWorkerHub(
  test: Owner,
  workers: number,
  { issuers, legacy, history, log: _log, clock: _clock, ...options }: HubOptions,
): Promise<WorkerHub> {
  const { redis: _redis, postgres: _postgres, ...hub } = options;
  const directory = await temporaryDirectory(test);
  const port = await freePort();
  const config = join(directory, 'hubgate.json');
  await writeFile(
    config,
    JSON.stringify({
      options: { admin: 'off', workers, storage: directory, gracePeriodMs: 1_000 },
      sites: [
        {
          // On every name: tests say what they like.
          addresses: [{ scheme: 'http', host: '', port }],
          bind: ['127.0.0.1'],
          hub: {
            ...hub,
            issuers: issuers.map(({ publisher, subscriber, ...issuer }) => ({
              ...issuer,
              publisher: keySource(publisher),
              subscriber: keySource(subscriber),
            })),
            legacy: {
              publisher: keySource(legacy?.publisher),
              subscriber: keySource(legacy?.subscriber),
            },
            transport: { kind: 'lmdb', path: history ?? join(directory, 'history') },
          },
          routes: [
            { handler: { kind: 'hub' } },
            { handler: { kind: 'respond', status: 404, body: 'the site' } },
          ],
        },
      ],
    }),
  );
  const started = new TestProcess([cli, 'run', '--config', config]);
  test.after(async () => void (await started.end('SIGKILL')));
  await listening(started, port);
  return {
    origin: `http://127.0.0.1:${port}`,
    get log() {
      return started.output.split('\n').flatMap((line) => logLine(line) ?? []);
    },
    async stop() {
      await started.end();
    },
  };
}

function keySource(key: HubKey | undefined): object | null {
  if (key === undefined) return null;
  if ('key' in key) return { kind: 'jwt', ...key };
  return { kind: 'jwks', uri: key.jwksUri, algorithms: key.algorithms ?? [] };
}

async function listening(started: TestProcess, port: number): Promise<void> {
  await started.says('Listening on');
  await new Promise<void>((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve();
    });
    socket.once('error', reject);
  });
}

function logLine(text: string): LogLine | null {
  if (!text.startsWith('{')) return null;
  const { level, msg, ...fields } = JSON.parse(text);
  return { level, message: msg, fields };
}
