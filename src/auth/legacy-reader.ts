import type { Grants, JsonValue } from '../hub/grants.ts';
import type { GrantContext } from './authorization-details.ts';

/**
 * Reads the claim of a 0.x token.
 *
 * @throws InvalidTokenError
 */
export type LegacyClaimReader = (
  claim: JsonValue | undefined,
  name: string,
  context: Pick<GrantContext, 'base' | 'cache'>,
) => Grants;
