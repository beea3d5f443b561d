import type { HeaderOperation } from './routes.ts';

/** What `basic_auth` has established, and what another service has answered, under all their names. */
const IDENTITY =
  /\{(?:(?:http\.)?auth\.user\.id|rp\.header\.[^{}]+|http\.reverse_proxy\.header\.[^{}]+)\}/;

/** The request fields that operations fill with what the gateway has found out about the user. */
export function identityFieldsIn(operations: readonly HeaderOperation[]): string[] {
  return operations.flatMap((one) =>
    (one.kind === 'set' || one.kind === 'add' || one.kind === 'default') && IDENTITY.test(one.value)
      ? [one.name]
      : [],
  );
}
