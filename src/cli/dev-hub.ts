/** What `token --dev` and `reverse-proxy --dev` agree on: the hub of a developer's machine. */
export const DEV = {
  /** A port that needs no privileges. */
  site: 'localhost:8443',
  issuer: 'https://localhost',
  hubPath: '/.well-known/hub',
  keyVariable: 'HUB_PUBLISHER_JWT_KEY',
  subscriberKeyVariable: 'HUB_SUBSCRIBER_JWT_KEY',
  /** Known to everybody: a hub warns when it is configured with it. */
  demoSecret: '!ChangeThisHubJWTSecretKey!',
  /** 2100-01-01. */
  expiresAtMs: 4_102_444_800_000,
} as const;
