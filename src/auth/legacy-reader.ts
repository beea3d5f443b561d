import type { Grants, JsonValue } from '../hub/grants.ts';
import type { Meter } from '../kernel/slices.ts';
import type { LegacyForms } from '../config/config.ts';
import type { GrantContext } from './authorization-details.ts';

export type LegacyContext = Pick<GrantContext, 'base' | 'cache'> & {
  /** What else than objects an entry may be. */
  readonly legacyForms: LegacyForms;
};

/**
 * Reads the claim of a 0.x token; yields when nothing is left of the meter.
 *
 * @throws InvalidTokenError
 */
export type LegacyClaimReader = (
  claim: JsonValue | undefined,
  name: string,
  context: LegacyContext,
  meter: Meter,
) => Generator<void, Grants, void>;
