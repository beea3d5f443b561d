import type { LegacyClaimReader } from './legacy-claim.ts';

/** Without `--conditions=deprecated_claim`, there is no reader for 0.x tokens. */
export const readLegacyClaim: LegacyClaimReader | null = null;
