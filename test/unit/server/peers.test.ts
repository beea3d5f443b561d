import assert from 'node:assert/strict';
import { Socket } from 'node:net';
import { describe, it } from 'node:test';
import { TLSSocket } from 'node:tls';
import { peerOf, Peers } from '../../../src/server/proxy-protocol.ts';

/** A connection that seems to come from there. */
function connection(remoteAddress?: string, remotePort?: number): Socket {
  const socket = new Socket();
  Object.defineProperty(socket, 'remoteAddress', { value: remoteAddress });
  Object.defineProperty(socket, 'remotePort', { value: remotePort });
  return socket;
}

const ALICE = { address: '192.0.2.1', port: 1 };
const BOB = { address: '192.0.2.2', port: 2 };

describe('the identity of a peer', () => {
  it('differs between two connections from the same address and port', () => {
    const peers = new Peers();
    const [one, other] = [connection('127.0.0.1', 9), connection('127.0.0.1', 9)];
    peers.add(one, ALICE);
    peers.add(other, BOB);
    other.emit('close');
    assert.equal(peers.connectionsOf(BOB.address), 0);
    const secured = new TLSSocket(one, { isServer: true }).on('error', () => {});
    assert.ok(peers.mark(secured));
    assert.deepEqual(peerOf(secured), ALICE);
    secured.destroy();
  });

  it('is empty for a Unix socket, and is not looked up once the connection is gone', () => {
    const peers = new Peers();
    const local = connection();
    peers.add(local, null);
    assert.ok(peers.mark(local));
    assert.deepEqual(peerOf(local), { address: '', port: 0 });
    local.destroy();
    assert.ok(!peers.mark(local));
  });
});
