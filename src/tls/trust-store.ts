import type { TrustedRoot } from './trusted-roots.ts';

/** A program with its arguments; no shell reads it. */
export type CommandLine = readonly [program: string, ...args: string[]];

/** A place where roots are kept that programs of this machine trust. */
export interface TrustStore {
  /** As it is named to the operator. */
  readonly name: string;
  /** Why this process cannot change it; null when it can. */
  readonly obstacle: 'permission' | 'by-hand' | null;
  /** null where that cannot be found out. */
  has(root: TrustedRoot): Promise<boolean | null>;
  install(root: TrustedRoot): readonly CommandLine[];
  remove(root: TrustedRoot): readonly CommandLine[];
}

export interface FoundStores {
  readonly stores: readonly TrustStore[];
  /** Stores that are there and cannot be used, each with the cure. */
  readonly missing: readonly string[];
}
