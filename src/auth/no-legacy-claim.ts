import type { LegacyClaimReader } from './legacy-reader.ts';

/** Without `--conditions=deprecated_claim` there is no reader of 0.x tokens. */
export const readLegacyClaim: LegacyClaimReader | null = null;
