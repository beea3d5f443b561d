import type { HandlerData } from '../../config/handler-data.ts';
import { list, nullable, object } from '../../config/shape.ts';
import { text } from '../../config/shape-values.ts';

export interface MapConfig {
  readonly kind: 'map';
  /** A text with placeholders. */
  readonly source: string;
  /** Variables, each with an output in every case: `{vars.NAME}`, and `{NAME}`. */
  readonly destinations: readonly string[];
  /** The first that fits counts. */
  readonly cases: readonly MapCase[];
  /** One for each destination, or none. */
  readonly defaults: readonly string[];
}

export interface MapCase {
  /** What the source is; null where there is a pattern. */
  readonly input: string | null;
  /** RE2; its groups are `${1}` in the outputs. */
  readonly pattern: string | null;
  /** null: the default. */
  readonly outputs: readonly (string | null)[];
}

/** Names that placeholders of requests have, which must stay what they are. */
const TAKEN = new Set(
  'host hostport port method scheme proto path dir file uri query orig_uri orig_path orig_query remote remote_host remote_port client_ip uuid upstream_hostport root orig_prefixed_query'.split(
    ' ',
  ),
);

export function isDestination(name: string): boolean {
  return /^[A-Za-z_]\w*$/.test(name) && !TAKEN.has(name);
}

const mapCase = object<MapCase>(
  {
    input: nullable(text('a text')),
    pattern: nullable(text('a regular expression')),
    outputs: list(nullable(text('a text')), { min: 1 }),
  },
  { input: null, pattern: null },
);

export const map: HandlerData<MapConfig> = {
  shape: () =>
    object(
      {
        source: text('a text with placeholders'),
        destinations: list(text('a name that no placeholder has', isDestination), { min: 1 }),
        cases: list(mapCase),
        defaults: list(text('a text')),
      },
      { defaults: [] },
    ),
  patterns: ({ cases }) => cases,
};
