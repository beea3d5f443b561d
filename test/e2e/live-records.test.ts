import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { openLivePage } from '../support/live-page.ts';

/** An item of the record `id`; `version` stands for what differs in each response and is not seen. */
type Item = (id: number, version: number) => string;

const ITEMS: readonly (readonly [string, Item])[] = [
  [
    'a button with data',
    (id, version) =>
      `<li>Smith <input class=mine><button data-id=${id} data-csrf=t${version}>Pay</button></li>`,
  ],
  [
    'a button with a value',
    (id, version) =>
      `<li>Smith <input class=mine><button value=${id} data-token=t${version}>Pay</button></li>`,
  ],
  [
    'a hidden field',
    (id, version) =>
      `<li>Smith <input type=hidden value=${id}><input class=mine><button data-csrf=t${version}>Pay</button></li>`,
  ],
  [
    'a form with an address of its own',
    (id, version) =>
      `<li>Smith <form action=/pay/${id}><input type=hidden name=csrf value=t${version}><input class=mine name=amount></form></li>`,
  ],
  [
    'forms that are the items',
    (id, version) =>
      `<form action=/pay><input type=hidden name=csrf value=t${version}><input type=hidden name=id value=${id}>Smith <input class=mine name=amount></form>`,
  ],
  [
    'images with signed addresses',
    (id, version) => `<figure><img src="/p/${id}.jpg?sig=${version}"><input class=mine></figure>`,
  ],
  [
    'names in fields',
    (id) => `<div><input name=name[] value="Item ${id}"><input class=mine name=count[]></div>`,
  ],
];

/** The record that an item shows, and what its visitor has entered in it. */
const SHOWN = `[...document.querySelectorAll('.mine')].map((field) => {
  const item = field.closest('li,figure,div') ?? field.form;
  const { outerHTML } = item.cloneNode(true);
  const [, id] = /(?:data-id="|pay\\/|p\\/|Item |"?id"? value="|hidden" value="|button value=")(\\d+)/.exec(outerHTML);
  return id + ':' + field.value;
})`;

describe('a live page with items that look alike', () => {
  for (const [name, item] of ITEMS) {
    it(`keeps what was entered with its record when items come and go: ${name}`, async (test) => {
      const lists = [
        [5, 6, 7],
        [9, 5, 6, 7],
        [9, 6, 7],
      ];
      const its = await openLivePage(test, {
        body: (version) =>
          `<main>${(lists[version - 1] ?? []).map((id) => item(id, version)).join('')}</main>`,
      });
      if (its === null) return;
      await its.page.locator('.mine').first().fill('100');
      await its.page.locator('#version').click();
      for (const ids of lists.slice(1)) {
        await its.change();
        const shown: string[] = await its.page.evaluate(SHOWN);
        assert.deepEqual(
          shown.filter((one) => one.endsWith(':100')),
          ['5:100'],
        );
        for (const id of ids) {
          assert.equal(
            shown.filter((one) => one.startsWith(`${id}:`)).length,
            1,
            `${id}: ${shown.join()}`,
          );
        }
      }
    });
  }

  it('keeps what was entered beside its name if that is the value of a field, and others come and change', async (test) => {
    const row = (name: string, price: number): string =>
      `<tr><td><input name=name[] value=${name}><td><input name=price[] value=${price}><td><input class=mine name=count[]></tr>`;
    const its = await openLivePage(test, {
      body: (version) =>
        `<table>${version === 1 ? row('Apples', 10) + row('Bananas', 20) + row('Cherries', 4) : row('Bananas', 20) + row('Cherries', 5) + row('Dates', 10)}</table>`,
    });
    if (its === null) return;
    await its.page.locator('.mine').first().fill('77');
    await its.page.locator('#version').click();
    await its.change();
    const rows = await its.page.evaluate<string[]>(
      `[...document.querySelectorAll('tr')].map((row) => [...row.querySelectorAll('input')].map(({ value }) => value).join(' '))`,
    );
    assert.deepEqual(rows.toSorted(), ['Apples 10 77', 'Bananas 20 ', 'Cherries 5 ', 'Dates 10 ']);
  });
});

/** Items in which nobody works. What a script or a visitor has made of an element acts on the record that it had. */
const IDLE: readonly (readonly [string, (id: number, name: string) => string])[] = [
  ['an address', (id, name) => `<li><b>${name}</b> <a href="/users/${id}">edit</a></li>`],
  ['data', (id, name) => `<li data-user-id=${id}>${name} <button>Delete</button></li>`],
  ['data of a row', (id, name) => `<tr data-user-id=${id}><td>${name}<td><button>x</button></tr>`],
  [
    'a form',
    (id, name) => `<li>${name} <form action=/users/${id}/delete><button>x</button></form>`,
  ],
  [
    'a hidden name',
    (_, name) =>
      `<li>${name} <form><input type=hidden name=u value="${name}"><button>x</button></form>`,
  ],
  ['a handler', (id, name) => `<li>${name} <button onclick="remove_(${id})">x</button></li>`],
  [
    'Alpine',
    (id, name) => `<li x-data="{id:${id}}">${name} <button @click="remove_(id)">x</button></li>`,
  ],
  [
    'the same text',
    (id) => `<li>Order <form action=/orders/${id}/delete><button>x</button></form></li>`,
  ],
];

describe('a live page with items in which nobody works', () => {
  const names = new Map([
    [17, 'Anna Smith'],
    [18, 'Ben Jones'],
    [19, 'Cy Miller'],
    [20, 'Dora West'],
  ]);
  it('uses no element for another record, wherever that is named', async (test) => {
    const lists = [
      [17, 18, 19],
      [20, 17, 18],
      [20, 19, 18],
      [18, 19],
      [21, 22, 23],
    ];
    const its = await openLivePage(test, {
      body: (version) =>
        IDLE.map(([, item], at) => {
          const items = (lists[version - 1] ?? []).map((id) => item(id, names.get(id) ?? `E${id}`));
          const tag = items.join('').startsWith('<tr') ? 'table' : 'ul';
          return `<section id=s${at}><${tag}>${items.join('')}</${tag}></section>`;
        }).join(''),
    });
    if (its === null) return;
    for (const ids of lists) {
      const shown: (number | null)[][] = await its.page.evaluate(
        `[...document.querySelectorAll('section')].map((list) => [...list.querySelectorAll('li,tr')].map((one, at) => {
          const record = one.record ?? null;
          one.record = ${JSON.stringify(ids)}[at];
          return record;
        }))`,
      );
      for (const [at, records] of shown.entries()) {
        const others = records.filter((record, place) => record !== null && record !== ids[place]);
        assert.deepEqual(
          [records.length, others],
          [ids.length, []],
          `${IDLE[at]?.[0]}, ${ids.join()}`,
        );
      }
      if (ids !== lists.at(-1)) await its.change();
    }
  });

  it('closes the dialog of a record that is gone, instead of asking about another one', async (test) => {
    const its = await openLivePage(test, {
      body: (version) =>
        `<ul>${(version === 1 ? [17, 18, 19] : [20, 17, 18]).map((id) => `<li><b>${names.get(id)}</b> <button type=button onclick="this.nextElementSibling.showModal()">Delete</button><dialog><p>Delete this user?</p><form method=post action=/users/${id}/delete><button>Yes</button></form></dialog></li>`).join('')}</ul>`,
    });
    if (its === null) return;
    await its.page.locator('li:nth-child(3) > button').click();
    await its.change();
    assert.deepEqual(
      await its.page.evaluate(
        "[...document.querySelectorAll('li')].map((one) => one.firstChild.textContent + one.querySelector('dialog').open)",
      ),
      ['Dora Westfalse', 'Anna Smithfalse', 'Ben Jonesfalse'],
    );
  });

  it('keeps the element of a record whose name and place change', async (test) => {
    const its = await openLivePage(test, {
      body: (version) =>
        `<ul>${(version === 1 ? [17, 18, 19] : [19, 17, 18]).map((id) => `<li>${version > 1 && id === 19 ? 'Someone Else' : names.get(id)} <a href=/users/${id}>edit</a></li>`).join('')}</ul>`,
    });
    if (its === null) return;
    await its.page.evaluate("document.querySelector('li:nth-child(3)').record = 19");
    await its.change();
    assert.deepEqual(
      await its.page.evaluate(
        "[...document.querySelectorAll('li')].map((one) => one.textContent + one.record)",
      ),
      ['Someone Else edit19', 'Anna Smith editundefined', 'Ben Jones editundefined'],
    );
  });
});

describe('a live page with a field of which a part is typed', () => {
  it('keeps that part, and the revision of its form', async (test) => {
    const its = await openLivePage(test, {
      body: (version) =>
        `<form><input type=hidden name=rev value=${version}><input type=date name=on value=${version === 1 ? '' : '2026-01-02'}></form>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.locator('[name=on]').focus();
    await page.keyboard.type('12');
    await page.locator('#version').click();
    await its.change();
    const field = 'document.querySelector("[name=on]")';
    assert.equal(await page.evaluate(`${field}.validity.badInput`), true);
    assert.equal(await page.locator('[name=rev]').inputValue(), '1');
  });
});

describe('a live page whose URL is that of one record after another', () => {
  it('shows no other record around a draft, and the next one once the draft is gone', async (test) => {
    const its = await openLivePage(test, {
      body: (version) =>
        `<link rel=canonical href=/tasks/${version}><h1>Task ${version}</h1><form><input type=hidden name=task value=${version}><textarea></textarea></form>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.locator('textarea').fill('my draft');
    await page.locator('#version').click();
    await page.evaluate("void fetch('/', { method: 'POST' })");
    await page.locator('#hub-stale').waitFor();
    assert.equal(await page.locator('h1').textContent(), 'Task 1');
    await page.evaluate("document.querySelector('form').reset()");
    await page.getByText('Task 2').waitFor();
    assert.equal(await page.locator('[name=task]').inputValue(), '2');
    assert.equal(await page.locator('#hub-stale').count(), 0);
  });

  it('shows no other record while a script may act on the one before', async (test) => {
    const its = await openLivePage(test, {
      body: (version) =>
        `<link rel=canonical href=/tasks/${version}><h1>Task ${version}</h1><button>Approve</button><script>const id = ${version}; document.querySelector('button').onclick = () => { window.approved = id; };</script>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.evaluate("void fetch('/', { method: 'POST' })");
    await page.locator('#hub-stale').waitFor();
    assert.equal(await page.locator('h1').textContent(), 'Task 1');
    const isLoaded = page.waitForEvent('load');
    await page.locator('#hub-stale').click();
    await isLoaded;
    assert.equal(await page.locator('h1').textContent(), 'Task 2');
    await page.getByText('Approve').click();
    assert.equal(await page.evaluate('window.approved'), 2);
  });
});

describe('a live list whose scripts know their items', () => {
  it('puts no new item in the place of one that has left, also if its script would act on that', async (test) => {
    const its = await openLivePage(test, {
      body: (version) =>
        `<ul>${(version === 1 ? ['A', 'B', 'C'] : ['A', 'C', 'E'])
          .map((name) => `<li>Order ${name} <button>Delete</button></li>`)
          .join('')}</ul>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.evaluate(`
      for (const item of document.querySelectorAll('li')) {
        const name = item.firstChild.data.trim();
        item.querySelector('button').onclick = () => { window.deleted = name; };
      }
    `);
    await its.change();
    assert.deepEqual(await page.locator('li').allTextContents(), [
      'Order A Delete',
      'Order C Delete',
      'Order E Delete',
    ]);
    await page.locator('li:last-child button').click();
    assert.equal(await page.evaluate('window.deleted'), undefined);
    await page.locator('li:nth-child(2) button').click();
    assert.equal(await page.evaluate('window.deleted'), 'Order C');
  });
});

describe('a live page with items that change while the visitor works in one', () => {
  for (const [name, item] of [
    [
      'its name',
      (id, version) =>
        `<li><b>${version > 1 && id === 1 ? 'new' : `old ${id}`}</b> <form action=/r/${id}><input class=mine name=n></form></li>`,
    ],
    [
      'a toggle',
      (id, version) =>
        `<li>Task <a href=/t/${id}/${version > 1 ? 'reopen' : 'close'}>x</a> <input class=mine></li>`,
    ],
    [
      'a hidden time',
      (id, version) =>
        `<li>Task <form action=/r/${id}><input type=hidden name=updated_at value=10:0${version}><input class=mine name=n></form></li>`,
    ],
    [
      'a count, without white space',
      (id, version) =>
        `<tr><td>Name${'ABC'[id]}</td><td>${version} min</td><td><input class=mine></td></tr>`,
    ],
    [
      'what it contains',
      (id, version) =>
        `<section><h2>Column ${'ABC'[id]}</h2>${version > 1 ? `<a href=/c/${id + 20}>card</a>` : ''}<a href=/c/${id + 10}>card</a><form action=/cards><input class=mine name=n></form></section>`,
    ],
  ] as const satisfies readonly (readonly [string, Item])[]) {
    it(`shows each once: ${name}`, async (test) => {
      const its = await openLivePage(test, {
        body: (version) => {
          const items = [0, 1, 2].map((id) => item(id, version)).join('');
          return items.startsWith('<tr>') ? `<table>${items}</table>` : `<main>${items}</main>`;
        },
      });
      if (its === null) return;
      await its.page.locator('.mine').nth(1).fill('mine');
      await its.page.locator('#version').click();
      await its.change();
      assert.deepEqual(
        await its.page.evaluate("[...document.querySelectorAll('.mine')].map((one) => one.value)"),
        ['', 'mine', ''],
      );
    });
  }

  it('keeps what was entered in a form of a Django formset with its id', async (test) => {
    const names = ['Smith', 'Jones', 'Miller'];
    const its = await openLivePage(test, {
      body: (version) =>
        `<ul>${[5, 6, 7]
          .slice(version - 1)
          .map(
            (id, at) =>
              `<li>${names[id - 5]}, ${version} min ago <form action=/save><input type=hidden name=form-${at}-id value=${id}><input class=mine name=form-${at}-qty></form></li>`,
          )
          .join('')}</ul>`,
    });
    if (its === null) return;
    await its.page.locator('.mine').first().fill('mine');
    await its.page.locator('#version').click();
    await its.change();
    assert.deepEqual(
      await its.page.evaluate(
        "[...document.querySelectorAll('li')].map((one) => one.firstChild.data.split(',')[0] + ' ' + one.querySelector('[type=hidden]').value + ' ' + one.querySelector('.mine').value)",
      ),
      ['Smith 5 mine', 'Jones 6 ', 'Miller 7 '],
    );
  });

  it('takes no item of another record for it, although it has the same text in the same place', async (test) => {
    const its = await openLivePage(test, {
      body: (version) =>
        `<ul>${(version === 1 ? [5, 6] : [9, 8]).map((id) => `<li>${id % 4 === 1 ? 'Smith' : 'Jones'} <input class=mine><button data-id=${id}>Pay</button></li>`).join('')}</ul>`,
    });
    if (its === null) return;
    await its.page.locator('.mine').first().fill('mine');
    await its.page.locator('#version').click();
    await its.change();
    const shown = await its.page.evaluate<string[]>(
      "[...document.querySelectorAll('li')].map((one) => one.querySelector('button').dataset.id + one.querySelector('.mine').value)",
    );
    assert.deepEqual(shown.toSorted(), ['5mine', '8', '9']);
  });

  it('removes an item that was kept once the visitor has emptied its field', async (test) => {
    const its = await openLivePage(test, {
      body: (version) =>
        `<ul>${(version === 1 ? ['Adams', 'Brown'] : ['Brown', 'Clark']).map((name) => `<li>${name} <input class=mine></li>`).join('')}</ul>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.locator('.mine').first().fill('mine');
    await page.locator('#version').click();
    await its.change();
    assert.equal(await page.locator('li').count(), 3);
    await page.locator('.mine').first().fill('');
    await page.locator('#version').click();
    await its.change();
    assert.deepEqual(await page.locator('li').allTextContents(), ['Brown ', 'Clark ']);
  });
});

describe('a live page with items in any script', () => {
  for (const names of [
    ['Tokyo', 'Osaka', 'Nagoya'],
    ['東京', '大阪', '名古屋'],
    ['🍎', '🍐', '🍒'],
  ]) {
    it(`keeps what was entered beside ${names[0]} when the server has replaced it`, async (test) => {
      const its = await openLivePage(test, {
        body: (version) =>
          `<ul>${names
            .slice(version - 1)
            .slice(0, 2)
            .map((name) => `<li>${name} <input></li>`)
            .join('')}</ul>`,
      });
      if (its === null) return;
      await its.page.locator('input').first().fill('mine');
      await its.page.locator('#version').click();
      await its.change();
      const shown = await its.page.evaluate<string[]>(
        `[...document.querySelectorAll('li')].map((item) => item.textContent + item.firstElementChild.value)`,
      );
      assert.deepEqual(
        shown.toSorted(),
        [`${names[0]} mine`, `${names[1]} `, `${names[2]} `].toSorted(),
      );
    });
  }
});

describe('a live page and what it must not undo', () => {
  it('keeps what was typed in several frames, one after the other', async (test) => {
    const frame = (name: string, version: number): string =>
      `<iframe id=${name} class=c${version} srcdoc="<textarea></textarea>${version}"></iframe>`;
    const its = await openLivePage(test, {
      body: (version) =>
        `${frame('one', version)}${frame('two', version)}${version === 1 ? frame('three', 1) : ''}<h1>${version}</h1>`,
    });
    if (its === null) return;
    const { page } = its;
    const field = (name: string) => page.frameLocator(`#${name}`).locator('textarea');
    for (const name of ['one', 'two', 'three']) {
      await field(name).click();
      await page.keyboard.type(name);
    }
    await page.locator('#version').click();
    await its.change();
    for (const name of ['one', 'two', 'three']) assert.equal(await field(name).inputValue(), name);
  });

  it('leaves a draft with its revision after going back, although another tab has shown a newer one', async (test) => {
    const its = await openLivePage(test, {
      body: (version) =>
        `<form><input type=hidden name=rev value=${version}><textarea name=text>text ${version}</textarea></form>`,
    });
    if (its === null) return;
    const { page } = its;
    const other = await page.context().newPage();
    const stream = other.waitForResponse((answer) => answer.url().includes('/.well-known/hub?'));
    await other.goto(page.url());
    await stream;
    await page.locator('textarea').fill('my draft');
    await its.change();
    await other.locator('#version:text-is("2")').waitFor();
    await page.goto(new URL('/framed', page.url()).href);
    await page.goBack();
    const form = "document.forms[0].rev.value + ' ' + document.forms[0].text.value";
    assert.equal(await page.evaluate(form), '1 my draft');
  });

  it('leaves the focus and the place where they are if the server inserts a field with autofocus', async (test) => {
    const its = await openLivePage(test, {
      body: (version) =>
        `<div>${version > 1 ? '<form><input autofocus></form>' : ''}</div><p style="height:5000px">long</p>`,
    });
    if (its === null) return;
    await its.page.evaluate('scrollTo(0, 2500)');
    await its.change();
    await its.page.evaluate('new Promise(requestAnimationFrame)');
    assert.equal(await its.page.evaluate('document.activeElement.localName'), 'body');
    assert.ok(Number(await its.page.evaluate('scrollY')) > 2000);
    // The attribute that the server has sent counts as shown.
    await its.change();
    assert.equal(await its.page.locator('#hub-stale').count(), 0);
  });

  for (const typo of ["<p title=it's>a</p>", '<img src="a"" alt="x">']) {
    it(`leaves out noscript, no matter which quotes are around it: ${typo}`, async (test) => {
      const its = await openLivePage(test, {
        body: (version) =>
          `${typo}<noscript><style>main{display:none}</style></noscript><main>${version} Don't</main>${typo}`,
      });
      if (its === null) return;
      await its.change();
      assert.equal(
        await its.page.evaluate("getComputedStyle(document.querySelector('main')).display"),
        'block',
      );
      assert.equal(await its.page.locator('main').textContent(), "2 Don't");
    });
  }

  it('keeps a form whose content cannot be compared after it was sent, if the page stays', async (test) => {
    const its = await openLivePage(test, {
      head: `<script>customElements.define('x-input', class extends HTMLElement {
  static observedAttributes = ['value'];
  constructor() { super(); this.attachShadow({ mode: 'open' }).innerHTML = '<input>'; }
  attributeChangedCallback(name, old, value) { this.shadowRoot.firstChild.value = value; }
});</script>`,
      body: (version) =>
        `<form method=post><x-input value="text ${version}"></x-input><input type=hidden name=rev value=${version}><button>Save</button></form>`,
    });
    if (its === null) return;
    const { page } = its;
    const field = page.locator('x-input input');
    await field.fill('my draft');
    await page.locator('#version').click();
    await its.change();
    // The server answers a POST with 204.
    await page.locator('button').click();
    await page.locator('#version:text-is("3")').waitFor();
    assert.equal(await field.inputValue(), 'my draft');
    assert.equal(await page.locator('[name=rev]').inputValue(), '1');
  });

  it('keeps a drawing in a canvas that the server removes or changes', async (test) => {
    const its = await openLivePage(test, {
      body: (version) =>
        `<canvas id=one width=${99 + version} height=100></canvas>${version === 1 ? '<p><canvas id=two></canvas></p>' : ''}`,
    });
    if (its === null) return;
    const { page } = its;
    for (const id of ['one', 'two']) {
      await page.locator(`#${id}`).click();
      await page.evaluate(`document.querySelector('#${id}').getContext('2d').fillRect(0, 0, 9, 9)`);
    }
    await its.change();
    for (const id of ['one', 'two']) {
      const alpha = `document.querySelector('#${id}').getContext('2d').getImageData(1, 1, 1, 1).data[3]`;
      assert.equal(await page.evaluate(alpha), 255, id);
    }
  });

  it('asks before its button discards what was entered', async (test) => {
    const its = await openLivePage(test, {
      body: (version) => `<h1>${version}</h1><form><textarea>text</textarea></form>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.locator('textarea').fill('my draft');
    await page.evaluate("document.querySelector('h1').textContent = 'mine'");
    await its.change();
    const asked: string[] = [];
    page.on('dialog', (dialog) => {
      asked.push(dialog.type());
      void dialog.dismiss();
    });
    await page.locator('#hub-stale').click({ noWaitAfter: true });
    assert.deepEqual(asked, ['beforeunload']);
    assert.equal(await page.locator('textarea').inputValue(), 'my draft');
  });

  it('is reloaded once, not again and again, if a fetch gets something else than the browser', async (test) => {
    const its = await openLivePage(test, { body: (version) => `<h1>${version}</h1>` });
    if (its === null) return;
    const { page } = its;
    let fetches = 0;
    await page.route('**/', (route) => {
      if (!('hub-live' in route.request().headers())) return route.continue();
      fetches += 1;
      return route.fulfill({ status: 403 });
    });
    let loads = 0;
    page.on('load', () => {
      loads += 1;
    });
    const publish = "void fetch('/', { method: 'POST' })";
    const stream = page.waitForResponse((answer) => answer.url().includes('/.well-known/hub?'));
    const reloaded = page.waitForEvent('load');
    await page.evaluate(publish);
    await reloaded;
    await stream;
    await page.evaluate(publish);
    await page.locator('#hub-stale').waitFor();
    assert.equal(loads, 1);
    assert.ok(fetches >= 2);
  });
});
