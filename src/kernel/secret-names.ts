/** Names of header fields and parameters whose values open doors: the only list of them. */
const SECRET_NAME =
  /^(?:proxy-)?authorization$|^(?:set-)?cookie$|^code$|api[-_]?key|(?:access|private)[-_]key|secret|passw(?:or)?d|token|session[-_]?id|credential|(?:^|[-_])(?:auth|jwt|sig|signature)$/i;

/**
 * Whether what a header field or a parameter of this name holds must not be printed: not in a log,
 * not in the configuration that the admin API shows, not in the excerpt of a message.
 */
export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name);
}

/** A URL or a request target without user info and without the values of secret parameters. */
export function withoutSecretParts(url: string, sign: string): string {
  return url
    .replaceAll(/(?<=:\/\/)[^\s/@"`]+(?=@)/g, sign)
    .replaceAll(
      /([?&#;])([^=&#;?\s"]{1,256})=([^&#;\s"]+)/g,
      (all, before: string, name: string) =>
        isSecretName(decoded(name)) ? `${before}${name}=${sign}` : all,
    );
}

/** A name is read as hub and app read it: `%61uthorization` is `authorization`. */
function decoded(name: string): string {
  const [[read] = ['']] = new URLSearchParams(`${name}=`);
  return read;
}
