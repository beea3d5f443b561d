import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { applicationDirectory, serveApplication } from '../support/application.ts';
import { freePort } from '../support/free-port.ts';
import { root } from '../support/process.ts';
import {
  installedApplication,
  type RecipeGateway,
  runClient,
  startRecipeGateway,
} from '../support/recipe-gateway.ts';

/*
 * gRPC's interoperability tests: those of grpc-go as it ships them, and the same with grpcio (PyPI), which is
 * another implementation of HTTP/2. The client speaks TLS to the gateway, the gateway h2c to the server.
 */

const STANDARD_CASES = [
  'empty_unary',
  'large_unary',
  'client_streaming',
  'server_streaming',
  'ping_pong',
  'empty_stream',
  'cancel_after_begin',
  'cancel_after_first_response',
  'timeout_on_sleeping_server',
  'custom_metadata',
  'status_code_and_message',
  'special_status_message',
  'unimplemented_method',
  'unimplemented_service',
];

/** Longer than all of them together may take: what is asked is that none fails. */
const SOAK_LATENCY = 'per_iteration_max_acceptable_latency_ms=300000';

async function gatewayOf(
  test: TestContext,
  program: string,
  args: (port: number) => readonly string[],
): Promise<RecipeGateway> {
  const port = await freePort();
  const cwd = applicationDirectory(test);
  await serveApplication(test, program, args(port), { port, cwd });
  return startRecipeGateway(test, 'gRPC', port);
}

describe('gRPC', () => {
  it('grpc-go: its client gets the same results as without a gateway', async (test) => {
    const server = installedApplication(test, 'go/bin/server');
    const client = server && installedApplication(test, 'go/bin/client');
    if (server === null || client === null) return;
    const { port, authority } = await gatewayOf(test, server, (at) => [`--port=${at}`]);
    // By the address: the client asks a name server about any name, and waits seconds for one that is silent.
    const target = ['--server_host=127.0.0.1', `--server_port=${port}`];
    const trust = ['--use_tls', '--use_test_ca', '--ca_file', authority];
    const soak = ['iterations=200', 'overall_timeout_seconds=300', SOAK_LATENCY];
    const common = [
      ...[...target, '--server_host_override=localhost', ...trust],
      ...soak.map((one) => `--soak_${one}`),
    ];
    for (const name of [...STANDARD_CASES, 'rpc_soak', 'channel_soak']) {
      await test.test(name, async () => {
        await runClient(client, [...common, `--test_case=${name}`]);
      });
    }
  });

  it('grpcio: its client gets the same results as without a gateway', async (test) => {
    const python = installedApplication(test, 'python/bin/python');
    if (python === null) return;
    const cases = join(root, 'test/apps/grpc_cases.py');
    const { port, authority } = await gatewayOf(test, python, (at) => [cases, 'serve', String(at)]);
    const own = ['timeout_while_the_server_sleeps', 'trailers_only_metadata', 'many_calls_at_once'];
    for (const name of [...STANDARD_CASES, ...own]) {
      await test.test(name, async () => {
        await runClient(python, [cases, 'call', `localhost:${port}`, authority, name]);
      });
    }
  });
});
