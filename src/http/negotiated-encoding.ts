/** Codings of a list that are looked at, and parameters of each; a client chooses their number. */
const MAX_CODINGS = 64;
const MAX_PARAMETERS = 8;

/** The first offered encoding that the client takes (RFC 9110 §12.5.3). */
export function negotiatedEncoding<Encoding extends string>(
  accepted: string,
  offered: readonly Encoding[],
): Encoding | null {
  const weights = new Map<string, number>();
  for (const item of accepted.toLowerCase().split(',', MAX_CODINGS)) {
    const [name = '', ...parameters] = item.split(';', MAX_PARAMETERS);
    const weight = parameters.map((one) => /^\s*q=([\d.]+)\s*$/.exec(one)?.[1]).find(Boolean);
    weights.set(name.trim(), Number(weight ?? 1));
  }
  return offered.find((one) => (weights.get(one) ?? weights.get('*') ?? 0) > 0) ?? null;
}
