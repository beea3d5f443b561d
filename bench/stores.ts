import type { BenchContext } from './context.ts';
import { freePort } from '../test/support/free-port.ts';
import { startPostgres } from '../test/support/postgres-server.ts';
import { installed, startServer } from './processes.ts';

/** Runs `work` beside a Redis of its own; not at all where none is installed. */
export async function withRedis(
  context: BenchContext,
  work: (transport: (stream: string) => string) => Promise<void>,
): Promise<void> {
  const program = installed('redis-server');
  if (program === null) {
    context.skip('redis-server', 'redis-server is not installed');
    return;
  }
  const port = await freePort();
  const directory = context.directory();
  const settings = ['--save', '', '--dir', directory, '--bind', '127.0.0.1', '--port', `${port}`];
  const redis = await startServer(program, settings, port);
  try {
    await work(
      (stream) =>
        `transport redis {\nurl redis://127.0.0.1:${port}\nstream ${stream}\nmax_length 200000\n}`,
    );
  } finally {
    await redis.stop();
  }
}

/** Runs `work` beside a PostgreSQL of its own, which flushes each commit; not at all where none is installed. */
export async function withPostgres(
  context: BenchContext,
  work: (transport: (stream: string) => string) => Promise<void>,
): Promise<void> {
  const ends: (() => unknown)[] = [];
  const asked = { skip: (why?: string) => context.skip('postgres', why ?? 'it is not installed') };
  const postgres = await startPostgres(
    asked,
    { after: (end) => ends.push(end) },
    { settings: ['fsync = on', 'shared_buffers = 128MB', 'max_wal_size = 1GB'] },
  );
  if (postgres === null) return;
  try {
    await work(
      (stream) =>
        `transport postgres {\nurl ${postgres.url}\nstream ${stream}\nmax_length 200000\n}`,
    );
  } finally {
    for (const end of ends) await end();
  }
}
