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
 * What is asked of whom, once all has been looked at that would make an order fail. A name that
 * leads elsewhere is for the own authority alone, if it is named.
 *
 * @throws AcmeError `on-demand-refused`, and that of the name
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

/** What was allowed once need not be so when it is renewed. */
async function checkPermission(
  { name, onDemand }: CertificateRequest,
  { permissions }: Tools,
): Promise<void> {
  if (onDemand === null || (await permissions.allows(name, onDemand))) return;
  throw new AcmeError('on-demand-refused', `on_demand_tls: ${name} may have no certificate`);
}

/** A private authority may know the name otherwise than this machine does. */
async function checkWhereItLeads(
  { name, issuers }: CertificateRequest,
  { nameCheck, challenges }: Tools,
  signal: AbortSignal,
): Promise<void> {
  const [first] = issuers;
  if (nameCheck === null || first === undefined || first === 'local') return;
  if (issuers.some((each) => each !== 'local' && each.root !== null)) return;
  const types = first.challenges.filter((type) => type !== 'dns-01');
  // Proven by DNS, a name may lead anywhere.
  if (types.length < first.challenges.length) return;
  await checkName(name, types, challenges, nameCheck, signal);
}
