import type { JsonSchema } from './shape.ts';
import type { ConfigRegistry } from './routes.ts';
import { configShape } from './shape-config.ts';

/** Configurations in YAML and JSON, as JSON Schema (draft 2020-12): generated, and shipped as a file. */
export function configSchema(registry: ConfigRegistry): JsonSchema {
  const definitions = new Map<string, JsonSchema>();
  const { properties, ...schema } = configShape(registry).schema(definitions);
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'hubgate',
    description: 'What a gateway serves: docs/hubfile.md, "YAML and JSON"',
    ...schema,
    properties: {
      $schema: { type: 'string', description: 'where this schema is, for editors' },
      ...(typeof properties === 'object' ? properties : {}),
    },
    $defs: Object.fromEntries(definitions),
  };
}
