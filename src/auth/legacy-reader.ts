import type { Grants, JsonValue } from '../hub/grants.ts';
import type { Meter } from '../kernel/slices.ts';
import type { GrantContext } from './authorization-details.ts';

/**
 * Reads the claim of a 0.x token; yields when nothing is left of the meter.
 *
 * @throws InvalidTokenError
 */
export type LegacyClaimReader = (
  claim: JsonValue | undefined,
  name: string,
  context: Pick<GrantContext, 'base' | 'cache'>,
  meter: Meter,
) => Generator<void, Grants, void>;
