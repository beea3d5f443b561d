/** A preview as the admin API sends it. */
interface PreviewData {
  readonly sites: Readonly<Record<'added' | 'removed' | 'changed', readonly string[]>>;
  readonly listeners: Readonly<Record<'opened' | 'closed' | 'changed', readonly string[]>> & {
    readonly handed_over: readonly { readonly from: string; readonly to: string }[];
  };
  readonly streams: readonly {
    readonly hub: string;
    readonly count: number;
    readonly why: string;
  }[];
  readonly histories_left_behind: readonly string[];
  readonly certificates: readonly {
    readonly name: string;
    readonly authorities: readonly string[];
  }[];
}

/** What a load would do, a line for each; none for nothing. */
export function previewLines(body: unknown): readonly string[] {
  // What answers there is a gateway of this version: another knows no such path.
  const { sites, listeners, streams, histories_left_behind, certificates } = body as PreviewData;
  const rows: (readonly [string, string])[] = [
    ...sites.added.map((site) => ['site added', site] as const),
    ...sites.removed.map((site) => ['site removed', site] as const),
    ...sites.changed.map((site) => ['site changed', site] as const),
    ...listeners.opened.map((one) => ['listener opened', one] as const),
    ...listeners.closed.map((one) => ['listener closed', one] as const),
    ...listeners.changed.map((one) => ['listener becomes', one] as const),
    ...listeners.handed_over.map(
      ({ from, to }) => ['listener handed over', `${from} to ${to}`] as const,
    ),
    ...streams.map(({ hub, count, why }) => ['streams end', `${count} of ${hub}: ${why}`] as const),
    ...histories_left_behind.map((name) => ['history left behind', name] as const),
    ...certificates.map(
      ({ name, authorities }) =>
        ['certificate ordered', `${name} of ${authorities.join(', else ')}`] as const,
    ),
  ];
  const width = Math.max(...rows.map(([what]) => what.length));
  return rows.map(([what, which]) => `${what.padEnd(width)}  ${which}`);
}
