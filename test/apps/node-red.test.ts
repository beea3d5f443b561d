import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { applicationDirectory, serveApplication } from '../support/application.ts';
import { freePort } from '../support/free-port.ts';
import {
  askedAnew,
  installedApplication,
  openPage,
  type RecipeVisitor,
  visitRecipe,
} from '../support/recipe-gateway.ts';

/*
 * Node-RED (npm: node-red), unchanged.
 */
const SETTINGS = `module.exports = {
  uiHost: '127.0.0.1',
  flowFile: 'flows.json',
  telemetry: { enabled: false },
  editorTheme: { tours: false },
};
`;

const FLOW = JSON.stringify(
  [
    { id: 'a1', type: 'http in', name: 'asked', url: '/hello', method: 'get', wires: [['a2']] },
    { id: 'a2', type: 'template', name: 'said', template: 'Said by a flow.', wires: [['a3']] },
    { id: 'a3', type: 'http response', name: 'answered', wires: [] },
  ].map((node, index) => ({ ...node, x: 120 + 200 * index, y: 120 })),
);

async function editor(test: TestContext, live: boolean): Promise<RecipeVisitor | null> {
  const program = installedApplication(test, 'npm/node_modules/node-red/red.js');
  if (program === null) return null;
  const place = applicationDirectory(test);
  writeFileSync(join(place, 'settings.js'), SETTINGS);
  const port = await freePort();
  const args = [program, '--userDir', place, '--port', String(port)];
  await serveApplication(test, process.execPath, args, { port, cwd: place });
  return visitRecipe(test, 'Node-RED', port, { live, also: '/' });
}

describe('Node-RED', () => {
  for (const live of [true, false]) {
    it(`imports a flow and deploys it, ${live ? 'with' : 'without'} live pages`, async (test) => {
      const their = await editor(test, live);
      if (their === null) return;
      const sockets: string[] = [];
      their.context.on('page', (opened) => {
        opened.on('websocket', (socket) => sockets.push(new URL(socket.url()).pathname));
      });
      const page = await openPage(their, '/', live);
      await page.locator('.red-ui-palette-node').first().waitFor();
      await page.keyboard.press('Control+i');
      const text = page.locator('#red-ui-clipboard-dialog-import-text');
      await text.fill(FLOW);
      await text.press('End'); // It looks at what it holds when a key is released.
      await page.locator('#red-ui-clipboard-dialog-ok').click();
      // What is imported hangs at the pointer until it is put down.
      const chart = page.locator('#red-ui-workspace-chart');
      await chart.click({ position: { x: 300, y: 200 } });
      await page.locator('.red-ui-flow-node-group').nth(2).waitFor();
      const built = await page.locator('#red-ui-editor *').count();
      assert.ok(built > 200, `${built} elements`);

      const asked = live ? askedAnew(page) : null;
      await page.locator('#red-ui-header-button-deploy').click();
      await page.getByText('Successfully deployed').first().waitFor();
      await asked;
      assert.equal(await page.locator('.red-ui-flow-node-group').count(), 3);
      const left = await page.locator('#red-ui-editor *').count();
      assert.ok(left >= built - 20, `${left} of ${built} elements`);
      const answer = await page.evaluate("fetch('/hello').then((answer) => answer.text())");
      assert.equal(answer, 'Said by a flow.');
      // One, which has not been lost and opened again.
      assert.deepEqual(sockets, ['/comms']);

      // The editor still edits.
      await page.locator('.red-ui-flow-node-group').nth(1).dblclick();
      await page.locator('#node-input-name').waitFor();
      assert.equal(await page.locator('#node-input-name').inputValue(), 'said');
      assert.deepEqual(their.said, []);
    });
  }
});
