/** What the tests use of the package, which has no types of its own. */
declare module 'oidc-provider' {
  import type { RequestListener } from 'node:http';

  interface Token {
    resourceServer: object;
    rar: readonly object[] | undefined;
    readonly clientId: string;
    readonly expiration: number;
    save(): Promise<string>;
  }

  export interface Context {
    readonly oidc: { readonly client: object; readonly params: Record<string, string | undefined> };
    body: unknown;
  }

  export class Provider {
    constructor(issuer: string, configuration: object);
    callback(): RequestListener;
    registerGrantType(
      name: string,
      handler: (context: Context) => Promise<void>,
      parameters: readonly string[],
    ): void;
    readonly ClientCredentials: {
      new (properties: object): Token;
      find(value: string): Promise<Token | undefined>;
    };
    readonly ResourceServer: new (
      identifier: string,
      properties: object,
    ) => object;
  }

  export const errors: {
    readonly InvalidGrant: new (description: string) => Error;
  };
}
