import type { Permissions } from '../on-demand/permissions.ts';
import { AcmeError, asAcmeError, fixFor } from './acme-error.ts';
import type { CertificateRequest, IssuanceTools } from './issuance.ts';
import { checkName, NAME_ELSEWHERE, type NameCheck } from './name-check.ts';

export interface OrderChecks {
  readonly permissions: Permissions;
  readonly nameCheck: NameCheck | null;
}

type Tools = OrderChecks & Pick<IssuanceTools, 'challenges' | 'log'>;

/**
 * Checks everything that would make an order fail, and returns the request to send. If the name leads
 * elsewhere, only the local authority remains, provided that it is among the issuers.
 *
 * @throws AcmeError `on-demand-refused`, or the error of the name check
 */
export async function checkedRequest(
  request: CertificateRequest,
  tools: Tools,
  signal: AbortSignal,
): Promise<CertificateRequest> {
  await checkPermission(request, tools);
  try {
    await checkWhereItLeads(request, tools, signal);
    return request;
  } catch (error) {
    const elsewhere = asAcmeError(error);
    const local = request.issuers.filter((each) => each === 'local');
    if (elsewhere.code !== NAME_ELSEWHERE || local.length === 0) throw error;
    tools.log.warn('hubgate asks no authority and uses a local certificate', {
      name: request.name,
      error: elsewhere.message,
      fix: fixFor(elsewhere),
    });
    return { ...request, issuers: local, staging: null };
  }
}

/** Checked for each order, because a permission may have been withdrawn before a renewal. */
async function checkPermission(
  { name, onDemand }: CertificateRequest,
  { permissions }: Tools,
): Promise<void> {
  if (onDemand === null || (await permissions.allows(name, onDemand))) return;
  throw new AcmeError('on-demand-refused', `on_demand_tls: ${name} may have no certificate`);
}

/** Checks the name, except for private authorities, which may resolve it differently from this machine. */
async function checkWhereItLeads(
  { name, issuers }: CertificateRequest,
  { nameCheck, challenges }: Tools,
  signal: AbortSignal,
): Promise<void> {
  const [first] = issuers;
  if (nameCheck === null || first === undefined || first === 'local') return;
  if (issuers.some((each) => each !== 'local' && each.root !== null)) return;
  const types = first.challenges.filter((type) => type !== 'dns-01');
  // With `dns-01`, the name may lead anywhere.
  if (types.length < first.challenges.length) return;
  await checkName(name, types, challenges, nameCheck, signal);
}
