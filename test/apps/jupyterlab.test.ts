import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
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
 * JupyterLab (PyPI: jupyterlab), unchanged, without a password.
 */
const NOTEBOOK = {
  cells: [{ cell_type: 'code', id: 'a', metadata: {}, outputs: [], source: "print('4' + '2')" }],
  metadata: {
    kernelspec: { display_name: 'Python 3 (ipykernel)', language: 'python', name: 'python3' },
  },
  nbformat: 4,
  nbformat_minor: 5,
};
const PAGE = '/lab/tree/notebook.ipynb';

async function lab(
  test: TestContext,
  live: boolean,
): Promise<(RecipeVisitor & { readonly place: string }) | null> {
  const jupyter = installedApplication(test, 'python/bin/jupyter-lab');
  if (jupyter === null) return null;
  const place = applicationDirectory(test);
  writeFileSync(join(place, 'notebook.ipynb'), JSON.stringify(NOTEBOOK));
  const port = await freePort();
  const settings = {
    root_dir: place,
    port,
    ip: '127.0.0.1',
    port_retries: 0,
    open_browser: 'False',
  };
  const args = [
    ...Object.entries(settings).map(([name, value]) => `--ServerApp.${name}=${value}`),
    ...['--IdentityProvider.token=', '--allow-root', '--LabApp.news_url=None'],
    '--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate',
  ];
  const directories = [
    'JUPYTER_CONFIG_DIR',
    'JUPYTER_DATA_DIR',
    'JUPYTER_RUNTIME_DIR',
    'IPYTHONDIR',
  ];
  const env = Object.fromEntries(directories.map((name) => [name, join(place, '.jupyter', name)]));
  await serveApplication(test, jupyter, args, { port, cwd: place, env: { ...env, HOME: place } });
  const visitor = await visitRecipe(test, 'JupyterLab', port, { live, also: PAGE });
  return visitor && { ...visitor, place };
}

describe('JupyterLab', () => {
  for (const live of [true, false]) {
    it(`runs a cell and saves it, ${live ? 'with' : 'without'} live pages`, async (test) => {
      const their = await lab(test, live);
      if (their === null) return;
      const page = await openPage(their, PAGE, live);
      const sockets: string[] = [];
      page.on('websocket', (socket) => sockets.push(new URL(socket.url()).pathname));
      const cell = page.locator('.jp-CodeCell').first();
      await cell.locator('.cm-content').click();
      await page.locator('.jp-Notebook-ExecutionIndicator[data-status=idle]').waitFor();
      await page.keyboard.press('Shift+Enter');
      await cell.locator('.jp-OutputArea-output').getByText('42').waitFor();
      assert.ok(
        sockets.some((path) => path.endsWith('/channels')),
        sockets.join(),
      );

      const nodes = await page.locator('#main *').count();
      assert.ok(nodes > 200, `${nodes} elements`);
      const stored = page.waitForResponse(
        (answer) => answer.request().method() === 'PUT' && answer.url().includes('/api/contents/'),
      );
      const asked = live ? askedAnew(page) : null;
      await page.keyboard.press('Control+s');
      await stored;
      await asked;
      await cell.locator('.jp-OutputArea-output').getByText('42').waitFor();
      const left = await page.locator('#main *').count();
      assert.ok(left >= nodes - 20, `${left} of ${nodes} elements`);
      assert.deepEqual(their.said, []);
      const saved = join(their.place, 'notebook.ipynb');
      assert.ok(existsSync(saved) && readFileSync(saved, 'utf8').includes('42\\n'));
    });
  }
});
