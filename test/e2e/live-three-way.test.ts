import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import type { Page } from 'playwright-core';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { LIVE_HUBFILE, openLivePage as live, removeFromServer } from '../support/live-page.ts';
import { startSite } from '../unit/discovery/site.ts';

describe('a live page with changes by the server, by scripts and by its visitor', () => {
  it('keeps a whole form that its user has touched, so that an edit conflict is still detected', async (test) => {
    const its = await live(test, {
      body: (version) => `<h1>Page ${version}</h1>
<form id=edit><input type=hidden name=editRevId value=${version}><input type=hidden name=csrf value=t${version}>
<textarea name=text>text ${version}</textarea><input name=summary value=s${version}><button>Save ${version}</button></form>
<input type=hidden form=edit name=outside value=${version}>
<form id=other><input type=hidden name=rev value=${version}></form>`,
    });
    if (its === null) return;
    const { page } = its;
    const sent = (id: string): Promise<unknown> =>
      page.evaluate(`Object.fromEntries(new FormData(document.getElementById('${id}')))`);
    await its.change();
    assert.deepEqual(await sent('edit'), {
      editRevId: '2',
      csrf: 't2',
      text: 'text 2',
      summary: 's2',
      outside: '2',
    });
    await page.locator('textarea').pressSequentially('mine ');
    await page.locator('h1').click();
    const touched = await sent('edit');
    await its.change();
    assert.equal(await page.locator('h1').textContent(), 'Page 3');
    assert.deepEqual(await sent('edit'), touched);
    assert.deepEqual(await sent('other'), { rev: '3' });
    // Typed and taken back: who has read the old text has decided by it.
    await page.fill('textarea', 'text 2');
    await its.change();
    assert.equal(((await sent('edit')) as Record<string, string>)['editRevId'], '2');
    await page.evaluate(`document.getElementById('edit').reset()`);
    // It has the focus until it is left.
    assert.equal(((await sent('edit')) as Record<string, string>)['editRevId'], '2');
    await page.locator('h1').click();
    await page.locator('button:text-is("Save 4")').waitFor();
    assert.deepEqual(await sent('edit'), {
      editRevId: '4',
      csrf: 't4',
      text: 'text 4',
      summary: 's4',
      outside: '4',
    });
  });

  it('keeps a form as long as a widget holds in a hidden field what was chosen, without an event', async (test) => {
    const its = await live(test, {
      body: (version) =>
        `<form><input type=hidden name=rev value=${version}><input type=hidden name=tags value=a></form><p>${version}</p>`,
    });
    if (its === null) return;
    const { page, change } = its;
    const sent = (): Promise<unknown> =>
      page.evaluate('Object.fromEntries(new FormData(document.forms[0]))');
    const choose = (tags: string): Promise<unknown> =>
      page.evaluate(`document.forms[0].tags.value = '${tags}'`);
    await choose('a,b');
    await change();
    assert.equal(await page.locator('p').textContent(), '2');
    assert.deepEqual(await sent(), { rev: '1', tags: 'a,b' });
    await choose('a');
    await change();
    assert.deepEqual(await sent(), { rev: '3', tags: 'a' });
  });

  it('keeps a form with a scripted editor, which fires no events', async (test) => {
    const its = await live(test, {
      body: (version) =>
        `<form><input type=hidden name=rev value=${version}><textarea>a</textarea></form>`,
    });
    if (its === null) return;
    await its.page.evaluate(`(() => {
      const area = document.querySelector('textarea');
      area.hidden = true;
      area.before(document.createElement('iframe'));
    })()`);
    await its.change();
    assert.equal(await its.page.locator('[name=rev]').inputValue(), '1');
  });

  it('keeps a form with an editor that a script has made of an element, or that reads from a field of its own', async (test) => {
    const its = await live(test, {
      body: (version) =>
        ['<x-editor></x-editor>', '<textarea name=text></textarea>', '<textarea></textarea>']
          .map((field) => `<form><input type=hidden name=rev value=${version}>${field}</form>`)
          .join(''),
    });
    if (its === null) return;
    // As Trix and CodeMirror do.
    await its.page.evaluate(`(() => {
      document.querySelector('x-editor').contentEditable = true;
      document.querySelector('[name=text]').after(document.createElement('textarea'));
    })()`);
    await its.change();
    const revisions = its.page.locator('[name=rev]');
    assert.deepEqual(
      await revisions.evaluateAll((all) => all.map((one) => one.getAttribute('value'))),
      ['1', '1', '2'],
    );
  });

  it('renews forms whose fields the browser has cleaned or chosen, and that nobody has touched', async (test) => {
    const fields = [
      '<input type=range min=1 max=5>',
      '<input type=range min=1 max=5 value=9>',
      '<input type=range min=0 max=10 step=4 value=5>',
      '<input type=email multiple value="a@example.com, b@example.com">',
      '<input type=number value=x>',
      '<input type=color>',
      '<select><optgroup disabled label=a><option>one</optgroup><optgroup label=b><option>two</optgroup></select>',
      '<select><option disabled>one<option>two</select>',
      '<select multiple><option selected disabled>one<option>two</select>',
    ];
    const its = await live(test, {
      body: (version) =>
        fields
          .map((field) => `<form>${field}<input type=hidden name=rev value=${version}></form>`)
          .join(''),
    });
    if (its === null) return;
    const { page } = its;
    const revisions = (): Promise<unknown> =>
      page.evaluate(`[...document.querySelectorAll('[name=rev]')].map(({ value }) => value)`);
    const values = (): Promise<unknown> =>
      page.evaluate(`[...document.querySelectorAll('form')].map(([{ value }]) => value)`);
    const before = await values();
    await its.change();
    assert.deepEqual(
      await revisions(),
      fields.map(() => '2'),
    );
    assert.deepEqual(await values(), before);
    // What the visitor chooses protects the form, and a reset ends this.
    await page.locator('[type=range]').first().press('ArrowRight');
    await page.locator('#version').click();
    await its.change();
    assert.deepEqual(
      await revisions(),
      fields.map((_, index) => (index === 0 ? '2' : '3')),
    );
    await page.evaluate(`document.querySelector('form').reset()`);
    await page
      .locator('[name=rev][value="3"]')
      .nth(fields.length - 1)
      .waitFor({ state: 'attached' });
    assert.deepEqual(await values(), before);
  });

  it('keeps a form that a script has submitted until it is back in its original state', async (test) => {
    const its = await live(test, {
      body: (version) =>
        `<form><input type=hidden name=rev value=${version}><input name=text><button>Say</button></form>`,
      head: `<script>addEventListener('submit', (event) => event.preventDefault())</script>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.locator('[name=text]').pressSequentially('mine');
    await page.click('button');
    await its.change();
    assert.equal(await page.locator('[name=rev]').inputValue(), '1');
    await page.evaluate(`document.querySelector('[name=text]').value = ''`);
    await its.change();
    assert.equal(await page.locator('[name=rev]').inputValue(), '3');
  });

  it('follows fields again once the server sends what was entered, whether they have been left before or after', async (test) => {
    const states = [
      { flag: '', text: 'old', choice: 'a', many: 'a', note: 'old' },
      { flag: 'checked', text: 'mine', choice: 'b', many: 'ab', note: 'old and mine' },
      { flag: '', text: 'old', choice: 'c', many: 'c', note: 'old' },
    ];
    const options = (chosen: string): string =>
      ['a', 'b', 'c']
        .map((one) => `<option ${chosen.includes(one) ? 'selected' : ''}>${one}</option>`)
        .join('');
    const fields = (version: number, kind: string): string => {
      const { flag, text, choice, many, note } = states[version - 1] ?? { many: '', choice: '' };
      return `<input type=checkbox data-of=${kind} ${flag}><input data-of=${kind} value="${text}">
<textarea data-of=${kind}>${text}</textarea><select data-of=${kind}>${options(choice)}</select>
<select multiple data-of=${kind}>${options(many)}</select><p contenteditable data-of=${kind}>${note}</p>
${['a', 'b', 'c'].map((one) => `<input type=radio name=${kind} data-of=${kind} value=${one} ${one === choice ? 'checked' : ''}>`).join('')}`;
    };
    const its = await live(test, {
      body: (version) => `${fields(version, 'alone')}
<input form=form data-of=form name=outside value=${states[version - 1]?.text}>
<form id=form>${fields(version, 'form')}<input type=hidden name=rev value=${version}></form>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.evaluate(`document.forms[0].onsubmit = (event) => event.preventDefault()`);
    for (const kind of ['alone', 'form']) {
      const of = (selector: string) => page.locator(`${selector}[data-of=${kind}]`);
      await of('[type=checkbox]').check();
      for (const name of ['input:not([type])', 'textarea']) {
        for (const one of await of(name).all()) await one.fill('mine');
      }
      await of('select:not([multiple])').selectOption('b');
      await of('[multiple]').selectOption(['a', 'b']);
      await of('[value=b]').check();
      await of('[contenteditable]').press('End');
      await page.keyboard.type(' and mine');
    }
    const entered = (): Promise<unknown> =>
      page.evaluate(
        `['alone', 'form'].map((kind) => [...document.querySelectorAll('[data-of=' + kind + ']')].map((one) =>
          /checkbox|radio/.test(one.type) ? one.checked : one.selectedOptions ? [...one.selectedOptions].map(({ value }) => value).join('') : one.value ?? one.textContent).join(' '))`,
      );
    const revision = (): Promise<string> => page.locator('[name=rev]').inputValue();
    const mine = 'true mine mine b ab old and mine false true false';
    assert.deepEqual(await entered(), [mine, `mine ${mine}`]);
    await page.evaluate(`document.forms[0].requestSubmit()`);
    // The last field, which is in the form, still has the focus.
    await its.change();
    assert.deepEqual(await entered(), [mine, `mine ${mine}`]);
    assert.equal(await revision(), '1');
    await its.change();
    const theirs = 'false old old c c old false false true';
    assert.deepEqual(await entered(), [theirs, `mine ${mine}`]);
    await page.locator('#version').click();
    await page.locator('[name=rev][value="3"]').waitFor({ state: 'attached' });
    assert.deepEqual(await entered(), [theirs, `old ${theirs}`]);
    assert.equal(await page.locator('#hub-stale').count(), 0);
  });

  it('follows an editable element again, with one line or several, in a form or without one', async (test) => {
    const texts = [
      ['old', 'old'],
      ['old mine', 'old mine<div>too</div>'],
      ['theirs', 'theirs'],
    ] as const;
    const its = await live(test, {
      body: (version) => {
        const [one = '', more = ''] = texts[version - 1] ?? [];
        const notes = `<p contenteditable class=one>${one}</p><div contenteditable class=more>${more}</div>`;
        return `${notes}<form>${notes}</form><form><p contenteditable class=one>${one}</p></form>`;
      },
    });
    if (its === null) return;
    const { page } = its;
    for (const note of await page.locator('[contenteditable]').all()) {
      await note.press('Control+End');
      await page.keyboard.type(' mine');
    }
    for (const note of await page.locator('.more').all()) {
      await note.press('Control+End');
      await page.keyboard.press('Enter');
      await page.keyboard.type('too');
    }
    await page.locator('#version').click();
    await its.change();
    await its.change();
    for (const note of await page.locator('[contenteditable]').all()) {
      assert.equal(await note.innerHTML(), 'theirs');
    }
  });

  it('follows a field again whose change the visitor has taken back', async (test) => {
    const its = await live(test, {
      body: (version) => `<input type=checkbox ${version > 2 ? 'checked' : ''}>`,
    });
    if (its === null) return;
    const box = its.page.locator('input');
    for (const _ of ['ticks', 'unticks']) await box.click();
    await its.page.locator('#version').click();
    await its.change();
    assert.equal(await box.isChecked(), false);
    await its.change();
    assert.equal(await box.isChecked(), true);
  });

  it('keeps the revision of a row whose fields are in no form, and renews it once a script has saved the row', async (test) => {
    const its = await live(test, {
      body: (version) =>
        `<table>${['a', 'b'].map((id) => `<tr id=${id}><td><input type=hidden name=rev value=${version}><td><input name=count value=${version}><td>${version}`).join('')}</table>`,
    });
    if (its === null) return;
    const { page, change } = its;
    const rows = (): Promise<unknown> =>
      page.evaluate(
        `[...document.querySelectorAll('tr')].map((row) => [...row.querySelectorAll('input')].map(({ value }) => value).join() + ',' + row.textContent)`,
      );
    await page.fill('#a [name=count]', '3');
    await page.locator('#version').click();
    await change();
    assert.deepEqual(await rows(), ['1,3,2', '2,2,2']);
    // The third version has what was entered.
    await change();
    assert.deepEqual(await rows(), ['3,3,3', '3,3,3']);
  });

  it('keeps the revision of a form in which a widget shows a copy of a field, or a script has filled a choice', async (test) => {
    const its = await live(test, {
      body: (version) => `<form><input type=hidden name=rev value=${version}>
<select multiple id=tags><option selected>a<option ${version > 1 ? 'selected' : ''}>b<option>c</select></form>
<form><input type=hidden name=rev value=${version}><select id=city data-value=${version}></select></form>
<form><input type=hidden name=rev value=${version}><select tabindex=-1><option><option ${version > 1 ? 'selected' : ''}>a</select></form>`,
    });
    if (its === null) return;
    const { page } = its;
    // As Tom Select does: what it writes back later are the items that it knows.
    await page.evaluate(`(() => {
      const [tags, city] = ['tags', 'city'].map((id) => document.getElementById(id));
      tags.tabIndex = -1;
      tags.after(document.createElement('div'));
      for (const value of [1, 2]) city.append(new Option(value, value, value === 1, value === 1));
    })()`);
    await its.change();
    await page.locator('#hub-stale').waitFor();
    assert.deepEqual(
      await page.evaluate(`[...document.querySelectorAll('[name=rev]')].map(({ value }) => value)`),
      ['1', '1', '2'],
    );
  });

  it('keeps the selection in a text of which the server has changed another part', async (test) => {
    const its = await live(test, {
      body: (version) => `<p id=text>${'new '.repeat(version)}words to copy</p>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.evaluate(`(() => {
      const [text] = document.getElementById('text').childNodes;
      const start = text.data.indexOf('to copy');
      getSelection().setBaseAndExtent(text, start, text, start + 'to copy'.length);
    })()`);
    await its.change();
    assert.equal(await page.locator('#text').textContent(), 'new new words to copy');
    assert.equal(await page.evaluate('String(getSelection())'), 'to copy');
  });

  it('takes an order, and a move to another list, that the server sends as a script has made them', async (test) => {
    const lists = [
      ['abc', 'd', ''],
      ['ca', 'bd', ''],
      ['ac', 'd', 'bx'],
    ];
    const its = await live(test, {
      body: (version) =>
        lists[version - 1]
          ?.map(
            (items) =>
              `<ul>\n${items
                .split('')
                .map((one) => `<li>${one}</li>\n`)
                .join('')}</ul>`,
          )
          .join('') ?? '',
    });
    if (its === null) return;
    const { page, change } = its;
    const shown = async (): Promise<string[]> =>
      (await page.locator('ul').allTextContents()).map((text) => text.replaceAll('\n', ''));
    const drag = (item: string, list: number): Promise<unknown> =>
      page.evaluate(`(() => {
        const item = [...document.querySelectorAll('li')].find(({ textContent }) => textContent === '${item}');
        document.querySelectorAll('ul')[${list}].prepend(item);
        (window.dragged ??= []).push(item);
      })()`);
    await drag('b', 1);
    await drag('c', 0);
    await change();
    assert.deepEqual(await shown(), ['ca', 'bd', '']);
    // Into an empty list, and past another change.
    await drag('b', 2);
    await change();
    assert.deepEqual(await shown(), ['ac', 'd', 'bx']);
    assert.equal(await page.locator('#hub-stale').count(), 0);
    assert.ok(await page.evaluate('window.dragged.every(({ isConnected }) => isConnected)'));
  });

  it('takes an item with an id that a script has moved to another list, although the server sends more of it than that', async (test) => {
    const its = await live(test, {
      body: (version) =>
        ['todo', 'done']
          .map((list, index) => {
            const isThere = index === Number(version > 1);
            const item = `<li id=item class=${list}>${list} ${version}</li>`;
            return `<ul id=${list}>${isThere ? item : ''}<li id=${list}-last>last</li></ul>`;
          })
          .join(''),
    });
    if (its === null) return;
    const { page, change } = its;
    await page.evaluate(`document.getElementById('done').prepend(document.getElementById('item'))`);
    await change();
    assert.deepEqual(await page.locator('ul').allTextContents(), ['last', 'done 2last']);
    await change();
    assert.deepEqual(await page.locator('ul').allTextContents(), ['last', 'done 3last']);
    assert.equal(await page.locator('#hub-stale').count(), 0);
  });

  it('keeps a form as long as a script holds what was entered in it', async (test) => {
    const its = await live(test, {
      body: (version) =>
        ['editor', 'chips', 'list']
          .map(
            (id) =>
              `<form id=${id}><textarea name=text></textarea><input name=one><p>${version}</p><input type=hidden name=rev value=${version}></form>`,
          )
          .join(''),
    });
    if (its === null) return;
    const { page } = its;
    await page.evaluate(`{
      const own = editor.appendChild(document.createElement('textarea'));
      own.oninput = () => { window.typed = (window.typed ?? '') + own.value; own.value = ''; };
      const take = (form, keep) => {
        form.one.onkeydown = (event) => {
          if (event.key !== 'Enter') return;
          event.preventDefault();
          keep(form.one.value);
          form.one.value = '';
        };
      };
      take(chips, (value) => {
        const chip = chips.appendChild(document.createElement('input'));
        Object.assign(chip, { type: 'hidden', name: 'to[]', value });
      });
      window.list = [];
      take(document.forms.list, (value) => window.list.push(value));
    }`);
    await page.locator('#editor textarea:not([name])').pressSequentially('unsaved');
    for (const id of ['chips', 'list']) {
      await page.locator(`#${id} [name=one]`).fill('unsaved');
      await page.locator(`#${id} [name=one]`).press('Enter');
    }
    await page.locator('#version').click();
    await its.change();
    await its.change();
    for (const id of ['editor', 'chips', 'list']) {
      assert.equal(await page.locator(`#${id} [name=rev]`).inputValue(), '1', id);
    }
  });

  it('keeps what was entered as long as the server sends only a part of it', async (test) => {
    const forms = [
      '<input name=a><input name=b>',
      '<input name=a><input name=b type=password>',
      '<input name=a><input name=b type=file>',
      '<input name=a><my-field></my-field>',
      '<input name=a><p contenteditable></p>',
    ];
    const radios = (chosen: string): string =>
      ['a', 'b', 'c']
        .map((one) => `<input type=radio name=r value=${one} ${one === chosen ? 'checked' : ''}>`)
        .join('');
    const its = await live(test, {
      body: (version) =>
        `${radios(version === 1 ? 'a' : 'b')}${forms
          .map((fields, index) =>
            `<form id=form${index}>${fields}<input type=hidden name=rev value=${version}></form>`.replace(
              'name=a',
              version === 1 ? '$&' : '$& value=mine',
            ),
          )
          .join('')}`,
    });
    if (its === null) return;
    const { page } = its;
    await page.evaluate(
      `document.querySelector('my-field').attachShadow({ mode: 'open' }).innerHTML = '<input>'`,
    );
    for (const one of await page.locator('[name=a]').all()) await one.fill('mine');
    for (const one of await page.locator('[name=b]:not([type=file]),my-field input,p').all()) {
      await one.fill('unsaved');
    }
    const file = { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('a') };
    await page.locator('[type=file]').setInputFiles(file);
    await page.locator('[value=c]').check();
    await page.locator('#version').click();
    await its.change();
    for (const one of await page.locator('[name=rev]').all()) {
      assert.equal(await one.inputValue(), '1');
    }
    assert.equal(await page.locator('[value=c]').isChecked(), true);
  });

  it('keeps what scripts have built in it, no matter when they ran', async (test) => {
    const its = await live(test, {
      body: (version) => `<p>News ${version}</p>
<div id=early></div><script>document.getElementById('early').innerHTML = '<b>early</b>'</script>
<div id=filled>Loading …</div>
<script>document.getElementById('filled').textContent = 'filled'; document.body.className = 'js';
document.querySelector('p').insertAdjacentHTML('afterend', '<em>inline</em>');
Promise.resolve().then(() => document.querySelector('p').insertAdjacentHTML('afterend', '<em>promised</em>'));</script>
<script src=/slow.js></script>
<div id=editor></div>
<div id=panel class=closed style="display:none" aria-expanded=false>Options ${version}</div>
<ul id=list class="v${version}"><li class=mw>one</li><li>two</li></ul><div id=text>text <b>bold</b> more</div>`,
      head: `<script>document.addEventListener('DOMContentLoaded', () => {
  document.getElementById('editor').innerHTML = '<div class=wrap><div contenteditable>half a sentence</div><canvas></canvas></div>';
})</script><script defer src="data:text/javascript,document.body.insertAdjacentHTML('beforeend','<nav>deferred</nav>')"></script>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.evaluate(`(() => {
      const panel = document.getElementById('panel');
      panel.classList.replace('closed', 'open');
      panel.style.display = 'block';
      panel.setAttribute('aria-expanded', 'true');
      const list = document.getElementById('list');
      list.classList.add('filtered');
      list.insertAdjacentHTML('beforebegin', '<div class=filters><select><option>all</select></div>');
      list.firstElementChild.insertAdjacentHTML('beforeend', ' <button>thank</button>');
    })()`);
    const before = await page.locator('body').innerHTML();
    await its.change();
    const after = await page.locator('body').innerHTML();
    const expected = before
      .replace('News 1', 'News 2')
      .replace('Options 1', 'Options 2')
      .replace('class="v1 filtered"', 'class="filtered v2"')
      .replace('>1</i>', '>2</i>');
    assert.equal(after, expected);
    assert.equal(await page.locator('#hub-stale').count(), 0);
    assert.deepEqual(its.messages, []);
  });

  it('offers to reload the page if the server has changed the same part as a script', async (test) => {
    const its = await live(test, {
      head: '<meta name=hub-stale content="Es gibt Neues.">',
      body: (version) => `<div id=app>Loading ${version}</div>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.evaluate(`(() => {
      document.getElementById('app').textContent = 'a script has filled it';
      window.told = [];
      document.addEventListener('hub:stale', (event) => {
        window.told.push(event.detail);
        if (window.told.length === 1) event.preventDefault();
      });
    })()`);
    await its.change();
    assert.equal(await page.locator('#hub-stale').count(), 0);
    await its.change();
    assert.equal(await page.locator('#app').textContent(), 'a script has filled it');
    assert.deepEqual(await page.evaluate('window.told'), [
      { visitor: 0, script: 1 },
      { visitor: 0, script: 1 },
    ]);
    await page.click('#hub-stale:text-is("Es gibt Neues.")');
    await page.locator('#app:text-is("Loading 3")').waitFor();
  });

  it('offers to reload the page if it cannot show a change, and shows the rest', async (test) => {
    const its = await live(test, {
      body: (version) =>
        `<ul id=list>${'<li>item</li>'.repeat(version)}</ul><p id=text>text ${version}</p>`,
    });
    if (its === null) return;
    const { page, change } = its;
    await page.evaluate(`(() => {
      window.told = [];
      document.addEventListener('hub:stale', (event) => window.told.push(event.detail));
      document.querySelector('#list').insertBefore = () => { throw new Error('not here') };
    })()`);
    await change();
    await page.locator('#hub-stale').waitFor();
    assert.equal(await page.locator('#text').textContent(), 'text 2');
    assert.deepEqual(await page.evaluate('window.told'), [{ visitor: 0, script: 1 }]);
    assert.equal(its.messages.filter((text) => text.includes('not here')).length, 1);
    await page.evaluate(`delete document.querySelector('#list').insertBefore`);
    await change();
    assert.equal(await page.locator('li').count(), 3);
    assert.equal(await page.locator('#hub-stale').count(), 0);
    await page.evaluate(`window.htmx = { process() { throw new Error('not ready') } }`);
    await change();
    await page.locator('#hub-stale').waitFor();
    assert.equal(await page.locator('li').count(), 4);
  });

  it('follows lists whose items the server inserts, removes and moves, and reuses existing nodes', async (test) => {
    const orders = ['', 'a b c d e', 'x a b c d e', 'e d c b a', 'a c e', 'a e f c', 'f c a e', ''];
    const its = await live(test, {
      body: (version) =>
        ['id', 'data-id', 'class']
          .map(
            (name) =>
              `<ul>${(orders[version]?.match(/\w/g) ?? []).map((item) => `<li ${name}=${name}${item}>item ${item}</li>`).join('\n')}</ul>`,
          )
          .join(''),
    });
    if (its === null) return;
    const { page } = its;
    for (let version = 1; version < orders.length; version += 1) {
      const lists = await page.evaluate(
        `[...document.querySelectorAll('ul')].map((list) => [...list.children].map((item) => item.textContent.at(-1)).join(' '))`,
      );
      assert.deepEqual(lists, [orders[version], orders[version], orders[version]]);
      const kept = await page.evaluate(
        `[...document.querySelectorAll('li')].filter((item) => item.known !== undefined && item.known !== item.textContent).length`,
      );
      assert.equal(kept, 0);
      await page.evaluate(
        `for (const item of document.querySelectorAll('li')) item.known = item.textContent`,
      );
      if (version < orders.length - 1) await its.change();
    }
  });

  it('keeps what was entered in an item of a list without ids beside its text, although tokens and times differ each time', async (test) => {
    // The latest three: with the new one, the oldest disappears.
    const its = await live(test, {
      body: (version) =>
        ['no', 'short', '<b>a</b> <b>much</b> <b>longer</b> one', 'I agree', 'second']
          .slice(version === 1 ? 1 : 0)
          .slice(0, 3)
          .map(
            (text) =>
              `<section><p>${text}</p> <small>${version} min</small>
<form action=/reply><input type=hidden name=csrf value=${randomUUID()}><input type=hidden name=to value="${text}"><input name=reply></form></section>`,
          )
          .join(''),
    });
    if (its === null) return;
    await its.page.locator('section:has-text("short") [name=reply]').pressSequentially('mine');
    await its.page.locator('#version').click();
    await its.change();
    const shown = await its.page.evaluate(`[...document.querySelectorAll('section')].map((one) => [
      one.querySelector('p').textContent, one.querySelector('form').to.value.replace(/<.*?>/g, ''), one.querySelector('form').reply.value,
    ])`);
    assert.deepEqual(shown, [
      ['no', 'no', ''],
      ['short', 'short', 'mine'],
      ['a much longer one', 'a much longer one', ''],
    ]);
  });

  for (const [name, item] of [
    [
      'a form each',
      (id) =>
        `<li><b>Item ${id}</b> <form action=/pay><input type=hidden name=invoice value=${id}><input class=mine name=note></form></li>`,
    ],
    [
      'a form with an address of its own',
      (id) => `<li>Item ${id} <form action=/pay/${id}><input class=mine name=note></form></li>`,
    ],
    ['a field without a name', (id) => `<li><b>Item ${id}</b> <input class=mine></li>`],
    [
      'a field with a name of its own',
      (id) => `<li>Item ${id} <input class=mine name=p${id}></li>`,
    ],
    [
      'a field and a button',
      (id) => `<li>Item ${id} <input class=mine><button data-book=${id}>Book</button></li>`,
    ],
    [
      'a choice',
      (id) => `<li>Item ${id} <select class=mine name=what><option>keep<option>x</select></li>`,
    ],
    ['an editable element', (id) => `<li>Item ${id} <p class=mine contenteditable></p></li>`],
  ] as const satisfies readonly (readonly [string, (id: number) => string])[]) {
    it(`keeps what the visitor has entered beside its own label when items come and go: ${name}`, async (test) => {
      const lists = [
        [9, 8, 7, 6, 5],
        [10, 9, 8, 7, 6],
        [13, 12, 11, 10, 9, 6],
        [13, 12, 11, 20, 9, 6],
      ];
      const its = await live(test, {
        body: (version) => `<ul>${(lists[version - 1] ?? []).map(item).join('')}</ul>`,
      });
      if (its === null) return;
      const { page } = its;
      const field = (id: number) => page.locator(`li:has-text("Item ${id}") .mine`);
      const enter = async (id: number): Promise<void> => {
        const isChoice = name === 'a choice';
        await (isChoice ? field(id).selectOption('x') : field(id).fill('x'));
      };
      const entered = (): Promise<unknown> =>
        page.evaluate(
          `[...document.querySelectorAll('li')].filter((one) => [...one.querySelectorAll('.mine')].some((field) => (field.value ?? field.textContent) === 'x')).map((one) => /Item \\d+/.exec(one.textContent)[0])`,
        );
      const shown = (): Promise<string[]> => page.locator('li').allTextContents();
      await enter(5);
      await its.change();
      assert.deepEqual(await entered(), ['Item 5']);
      assert.equal((await shown()).filter((text) => text.includes('Item 10')).length, 1);
      await enter(8);
      await its.change();
      assert.deepEqual(((await entered()) as string[]).toSorted(), ['Item 5', 'Item 8']);
      for (const id of [13, 12, 11, 10, 9, 6]) {
        const rows = (await shown()).filter((text) => text.includes(`Item ${id}`));
        assert.equal(rows.length, 1, `${id}`);
      }
    });
  }

  it('keeps one item for each when the texts of all have changed and the visitor works in one', async (test) => {
    const its = await live(test, {
      body: (version) =>
        `<ul>${['Bitcoin', 'Ether', 'Gold'].map((name, index) => `<li>${name} ${version * 7 + index}.50 <form action=/buy><input name=amount></form></li>`).join('')}</ul>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.locator('li:has-text("Ether") input').fill('3');
    await its.change();
    assert.deepEqual(
      (await page.locator('li').allTextContents()).map((text) => text.trim()),
      ['Bitcoin 14.50', 'Ether 15.50', 'Gold 16.50'],
    );
    assert.equal(await page.locator('li:has-text("Ether") input').inputValue(), '3');
  });

  it('keeps each of many items once when the visitor works in all, and the texts of all have changed', async (test) => {
    const ids = Array.from({ length: 400 }, (_, id) => id);
    const its = await live(test, {
      body: (version) =>
        `<ul>${ids.map((id) => `<li>Item ${id}, ${version} minutes ago <input type=checkbox></li>`).join('')}</ul>`,
    });
    if (its === null) return;
    const { page } = its;
    await page.evaluate("for (const box of document.querySelectorAll('input')) box.checked = true");
    await its.change();
    assert.deepEqual(
      (await page.locator('li').allTextContents()).map((text) => text.trim()),
      ids.map((id) => `Item ${id}, 2 minutes ago`),
    );
    assert.equal(await page.locator('input:checked').count(), ids.length);
  });

  it('does the same work for each of many rows that have changed', async (test) => {
    const rows = 6000;
    const its = await live(test, {
      body: (version) =>
        `<table>${Array.from({ length: rows }, (_, row) => `<tr><td>row ${row}<td>${version} minutes ago`).join('\n')}</table>`,
    });
    if (its === null) return;
    const { page } = its;
    // Rows are compared by their words, and the visitor's work is searched with selectors.
    await page.evaluate(`(() => {
      calls = { has: 0, querySelectorAll: 0, matches: 0, closest: 0 };
      for (const name of Object.keys(calls)) {
        const owner = name === 'has' ? Set.prototype : Element.prototype;
        const own = owner[name];
        owner[name] = function (...given) {
          calls[name] += 1;
          return own.apply(this, given);
        };
      }
    })()`);
    await its.change();
    assert.equal(await page.locator('td').last().textContent(), '2 minutes ago');
    const calls = await page.evaluate<Record<string, number>>('calls');
    // Twice to half as much again as each takes. Comparing each row with each other would be millions.
    const most = { has: 100, querySelectorAll: 20, matches: 4, closest: 12 };
    for (const [name, each] of Object.entries(most)) {
      const count = calls[name] ?? 0;
      assert.ok(count > rows && count < each * rows, `${count} calls of ${name}`);
    }
  });

  it('follows although a form has a field with the name of a method', async (test) => {
    const its = await live(test, {
      body: (version) =>
        `<form><input name=matches><input name=contains value=${version}></form><p>${version}</p>`,
    });
    if (its === null) return;
    await its.change();
    assert.equal(await its.page.locator('p').textContent(), '2');
    assert.equal(await its.page.locator('[name=contains]').inputValue(), '2');
  });

  it('keeps the fields of a form beside which the parser has put them, and offers to reload the page', async (test) => {
    const its = await live(test, {
      body: (version) => {
        const rows = ['a', 'b', ...(version > 1 ? ['c'] : [])].map(
          (name) => `<tr id=${name}><td>${version} <input name=${name} value=1>`,
        );
        if (version > 2) rows.reverse();
        return `<table><form>${rows.join('')}</form></table>`;
      },
    });
    if (its === null) return;
    const { page, change } = its;
    const sent = (): Promise<unknown> =>
      page.evaluate('[...new FormData(document.forms[0]).keys()]');
    await change();
    assert.equal(await page.locator('#a').textContent(), '2 ');
    assert.equal(await page.locator('#c').count(), 0);
    await page.locator('#hub-stale').waitFor();
    await change();
    assert.deepEqual(await sent(), ['a', 'b']);
    await page.reload();
    assert.deepEqual(await sent(), ['c', 'b', 'a']);
  });

  it('is not confused by duplicate ids', async (test) => {
    const its = await live(test, {
      body: (version) =>
        `<p id=same>a${version}</p><p id=same>b${version}</p><div><p id=same>c${version}</p></div>`,
    });
    if (its === null) return;
    await its.change();
    assert.deepEqual(await its.page.locator('#same').allTextContents(), ['a2', 'b2', 'c2']);
    assert.deepEqual(its.messages, []);
  });

  it('follows attributes whose names only the parser accepts, or that have a namespace', async (test) => {
    // `setAttribute` refuses `=x` in all browsers, and `@click` in older ones.
    const its = await live(test, {
      body: (version) => `<b id=b @click="vote(${version})" =x=${version} #a.b:c=${version}>b</b>
<i ${version === 1 ? '@old =old' : '@new="2" =new=2'}>i</i>
<svg><use ${version === 1 ? '' : 'xlink:href="#b"'}></use></svg><p>text ${version}</p>
<div id=svelte =x=${version}><b>left to its framework</b></div><script>document.querySelector('#svelte').hydrate_init = true</script>`,
    });
    if (its === null) return;
    const { page } = its;
    const namesOf = (selector: string): Promise<unknown> =>
      page.evaluate(
        `[...document.querySelector('${selector}').attributes].map(({ name, value }) => name + ' ' + value)`,
      );
    for (const version of [2, 3]) {
      await its.change();
      assert.deepEqual(await namesOf('#b'), [
        'id b',
        `@click vote(${version})`,
        `=x ${version}`,
        `#a.b:c ${version}`,
      ]);
      assert.equal(await page.locator('p').textContent(), `text ${version}`);
    }
    assert.deepEqual(await namesOf('i'), ['@new 2', '=new 2']);
    assert.equal(await page.evaluate(`document.querySelector('use').href.baseVal`), '#b');
    assert.equal(await page.locator('#hub-stale').count(), 0);
    assert.deepEqual(its.messages, []);
  });

  it('activates nothing: no script, nothing in noscript, under a policy with strict-dynamic', async (test) => {
    const its = await live(test, {
      headers: (version) => ({
        'Content-Security-Policy': `script-src 'nonce-n${version}' 'strict-dynamic'; object-src 'none'`,
      }),
      head: '<noscript><link rel=stylesheet href=/none><img src=/pixel></noscript>',
      body: (version) => `
<script nonce=n${version}>window.ran = (window.ran ?? 0) + 1</script>
<script type=${version === 1 ? 'text/plain' : 'module'} id=inert>window.ran = 'inert'</script>
<noscript><iframe src=/framed></iframe><meta http-equiv=refresh content="0;url=/gone"></noscript>
<script type=application/json id=data>{"version":${version}}</script>
${version === 1 ? '' : `<section><script nonce=n${version}>window.ran = 'new'</script><script nonce=n1>window.ran = 'old nonce'</script><noscript><iframe src=/framed></iframe></noscript><meta http-equiv=refresh content="0;url=/gone"><template><script nonce=n1>window.ran = 'template'</script></template><svg><script>window.ran = 'svg'</script></svg>new</section>`}`,
    });
    if (its === null) return;
    const { page } = its;
    await its.change();
    assert.equal(await page.locator('section').innerText(), 'new');
    assert.equal(await page.evaluate('window.ran'), 1);
    assert.equal(await page.locator('iframe').count(), 0);
    assert.equal(page.frames().length, 1);
    assert.equal(await page.locator('meta[http-equiv]').count(), 0);
    assert.equal(await page.locator('#inert').getAttribute('type'), 'text/plain');
    assert.equal(await page.locator('section script').count(), 0);
    await its.change();
    assert.equal(await page.evaluate('window.ran'), 1);
    assert.deepEqual(its.messages, []);
  });

  it('updates under a policy that requires trusted types', async (test) => {
    const its = await live(test, {
      headers: () => ({
        'Content-Security-Policy': "require-trusted-types-for 'script'; trusted-types hubgate",
      }),
      body: (version) =>
        `<template id=part><b>part ${version}</b><script>window.ran = 1</script></template><p>${version}</p>`,
    });
    if (its === null) return;
    await its.change();
    const part = await its.page.locator('#part').innerHTML();
    assert.equal(part, '<b>part 2</b>');
    assert.deepEqual(its.messages, []);
  });

  it('shows the rest if a policy refuses a change, such as that of a script in an attribute', async (test) => {
    const its = await live(test, {
      headers: () => ({ 'Content-Security-Policy': "require-trusted-types-for 'script'" }),
      body: (version) => `<button onclick="vote(${version})">vote</button><p>text ${version}</p>`,
    });
    if (its === null) return;
    await its.change();
    assert.equal(await its.page.locator('p').textContent(), 'text 2');
    await its.page.locator('#hub-stale').waitFor();
  });

  it('parses the HTML of the server as the browser does, however it is written', async (test) => {
    const odd = `<p>one<b>bold<p>two</b>three<table>foster<tr><td>cell<b>x</table>after</i>
<noscript><img src=/none><p>without</noscript>text<noscript>more</noscript>text
<template><p>in<template><b>inner</b></template></template><svg><title>t</title><path d="M0 0"/></svg>
<div><template shadowrootmode=open><slot></slot>shadow</template>light</div>
<textarea>
first &lt;noscript></textarea><a title="<noscript>">link<a>other</a><!-- <noscript> --><select><option>a<option>b</select>
<script>{ const text = '<noscript>'; }</script><form><div><form></div>inner</form><ul><li>1<li>2</ul><details open><summary>s</details>
<pre>
line</pre><math><mi>x</mi></math><button><p>in a button</button><dl><dt>a<dd>b</dl><custom-thing is=x>c</custom-thing>`;
    const its = await live(test, {
      head: '<noscript><img src=/none></noscript><meta name=after content=1>',
      body: (version) => `${odd}<p id=last>${version}</p>${odd.repeat(40)}`,
    });
    if (its === null) return;
    const { page } = its;
    await page.evaluate(`document.addEventListener('hub:stale', () => (window.isStale = true))`);
    const before = await page.locator('body').innerHTML();
    await its.change();
    const after = await page.locator('body').innerHTML();
    assert.equal(
      after,
      before.replace('<p id="last">1</p>', '<p id="last">2</p>').replace('>1</i>', '>2</i>'),
    );
    assert.equal(await page.evaluate('window.isStale'), undefined);
  });

  it('reads the response in the encoding of the page', async (test) => {
    const its = await live(test, {
      head: '<meta charset=windows-1252>',
      headers: () => ({ 'Content-Type': 'text/html' }),
      encoding: 'latin1',
      body: (version) =>
        `<p>café ${version}</p><form><input name=city value="Zürich"><input type=hidden name=rev value=${version}></form>`,
    });
    if (its === null) return;
    await its.change();
    assert.equal(await its.page.locator('p').textContent(), 'café 2');
    assert.equal(await its.page.inputValue('[name=city]'), 'Zürich');
  });

  it('leaves the rows of DataTables, the state of Alpine and the elements of Svelte 4 to them, and offers to reload the page', async (test) => {
    const its = await live(test, {
      body: (
        version,
      ) => `<table><tbody id=rows>${version > 1 ? '<tr><td>new</td></tr>' : ''}<tr><td>old</td></tr></tbody></table>
<div id=state x-data="{ count: ${version} }"><p id=text>${version}</p></div><div id=svelte><b>${version}</b></div>
<script>
for (const row of document.querySelectorAll('tr')) row._DT_RowIndex = 0;
document.querySelector('#state')._x_dataStack = [{ count: 5 }];
document.querySelector('#svelte').hydrate_init = true;
</script>`,
    });
    if (its === null) return;
    const { page, change } = its;
    await change();
    await page.locator('#hub-stale').waitFor();
    assert.equal(await page.locator('#rows').textContent(), 'old');
    assert.equal(await page.locator('#state').getAttribute('x-data'), '{ count: 1 }');
    assert.equal(await page.locator('#text').textContent(), '2');
    assert.equal(await page.locator('#svelte').textContent(), '1');
  });

  it('offers to reload the page if a shadow tree has changed that its component does not show', async (test) => {
    const its = await live(test, {
      body: (version) => `<p id=text>${version}</p>
<my-card><template shadowrootmode=open shadowrootdelegatesfocus><b>${version > 2 ? 'new' : 'old'}</b>
<my-inner><template shadowrootmode=open>inner</template></my-inner></template><i>slotted ${version}</i></my-card>
<my-list title=${version}><template shadowrootmode=open><b>list ${version}</b></template></my-list>`,
    });
    if (its === null) return;
    const { page, change } = its;
    await page.evaluate(`
      customElements.define('my-list', class extends HTMLElement {
        static observedAttributes = ['title'];
        attributeChangedCallback(name, before, now) {
          this.shadowRoot.querySelector('b').textContent = 'list ' + now;
        }
      });
      window.stale = 0;
      document.addEventListener('hub:stale', () => (window.stale += 1));
    `);
    await change();
    await page.getByText('list 2').waitFor();
    await page.waitForFunction('document.querySelector("#text").textContent === "2"');
    const fetched = page.waitForResponse((one) => 'hub-live' in one.request().headers());
    await page.evaluate("void fetch('/', { method: 'POST' })");
    await fetched;
    await page.locator('#hub-stale').waitFor();
    assert.equal(
      await page.evaluate('window.stale'),
      1,
      'the component has shown the first change',
    );
    assert.equal(await page.locator('my-card b').textContent(), 'old');
    assert.equal(await page.locator('my-card > i').textContent(), 'slotted 3');
    assert.equal(await page.locator('my-list b').textContent(), 'list 3');
  });

  it('is not reloaded when the server has removed it, if the visitor decides against resetting a form', async (test) => {
    const its = await live(test, {
      body: () =>
        '<form onreset="return false"><p contenteditable>text</p><button type=reset>reset</button></form>',
    });
    if (its === null) return;
    const { page } = its;
    await page.locator('p').pressSequentially('my draft');
    await page.locator('button').click();
    await removeFromServer(page);
    await page.locator('#hub-stale').waitFor();
    assert.match((await page.locator('p').textContent()) ?? '', /my draft/);
  });

  it('keeps what a custom element does when the parser inserts it', async (test) => {
    const its = await live(test, {
      head: `<script>
customElements.define('my-tabs', class extends HTMLElement {
  connectedCallback() {
    this.classList.add('ready');
    this.classList.add('shown');
    this.setAttribute('role', 'tablist');
    this.textContent = 'built';
  }
});
customElements.define('my-plain', class extends HTMLElement {});
</script>`,
      body: (version) => `<my-tabs class="c${version}" title=${version}></my-tabs>
<my-tabs><b>sent ${version}</b></my-tabs><my-plain title=${version}><b>plain ${version}</b></my-plain><p>${version}</p>`,
    });
    if (its === null) return;
    const { page, change } = its;
    await change();
    assert.deepEqual(
      await page.evaluate(
        "[...document.querySelectorAll('my-tabs,my-plain')].map((one) => one.outerHTML)",
      ),
      [
        '<my-tabs class="ready shown c2" title="2" role="tablist">built</my-tabs>',
        '<my-tabs class="ready shown" role="tablist">built<b>sent 2</b></my-tabs>',
        '<my-plain title="2"><b>plain 2</b></my-plain>',
      ],
    );
    assert.equal(await page.locator('#hub-stale').count(), 0);
  });

  it('is not reloaded when the server has removed it, after somebody has typed in a frame', async (test) => {
    const its = await live(test, {
      body: (version) =>
        `<iframe srcdoc="<textarea></textarea>" class=c${version}></iframe><a href=#a>a</a>`,
    });
    if (its === null) return;
    const { page } = its;
    const field = page.frameLocator('iframe').locator('textarea');
    await field.click();
    await field.pressSequentially('my draft');
    await page.locator('a').click();
    await its.change();
    await removeFromServer(page);
    await page.locator('#hub-stale').waitFor();
    assert.equal(await field.inputValue(), 'my draft');
  });

  for (const parent of ['form', 'div']) {
    it(`is not reloaded when the server has removed it, while a widget holds in a hidden field in a ${parent} what was chosen`, async (test) => {
      const its = await live(test, {
        body: () => `<${parent}><input type=hidden name=stars value=0></${parent}>`,
      });
      if (its === null) return;
      const { page } = its;
      await page.evaluate("document.getElementsByName('stars')[0].value = '4'");
      await removeFromServer(page);
      await page.locator('#hub-stale').waitFor();
      assert.equal(await page.locator('[name=stars]').inputValue(), '4');
    });
  }

  for (const [what, body, act] of [
    [
      'drawn outside of a form',
      '<canvas width=100 height=100></canvas>',
      (page: Page) => page.locator('canvas').click(),
    ],
    [
      'opened a dialog',
      '<dialog>d</dialog>',
      (page: Page) => page.evaluate("document.querySelector('dialog').showModal()"),
    ],
  ] as const) {
    it(`is not reloaded when the server has removed it, after the visitor has ${what}`, async (test) => {
      const its = await live(test, { body: () => body });
      if (its === null) return;
      const { page } = its;
      await act(page);
      await page.evaluate('window.isOld = true');
      await removeFromServer(page);
      await page.locator('#hub-stale').waitFor({ state: 'attached' });
      assert.equal(await page.evaluate('window.isOld'), true);
    });
  }

  it('takes no response without content for a page (RFC 9110 §15.3.5)', async (test) => {
    const its = await live(test, { body: (version) => `<p>text ${version}</p>` });
    if (its === null) return;
    const { page } = its;
    await page.evaluate(`(() => {
      const seen = () => (window.wasEmpty ||= document.querySelector('p') === null);
      new MutationObserver(seen).observe(document.documentElement, { childList: true, subtree: true });
    })()`);
    const html = { 'Content-Type': 'text/html' };
    await page.route('**/', (route) =>
      'hub-live' in route.request().headers()
        ? route.fulfill({ status: 204, headers: html })
        : route.continue(),
    );
    const empty = page.waitForResponse(
      (answer) => answer.status() === 204 && answer.request().method() === 'GET',
    );
    await page.evaluate("void fetch('/', { method: 'POST' })");
    await empty;
    await page.unroute('**/');
    await fetch(page.url(), { method: 'POST' });
    await page.locator('p:text-is("text 3")').waitFor();
    assert.equal(await page.evaluate('window.wasEmpty'), false);
  });

  it('keeps the revision of a form that goes on showing what a script has changed', async (test) => {
    const its = await live(test, {
      body: (version) =>
        `<form><input type=hidden name=rev value=${version}>${(version === 1
          ? ['a', 'b']
          : ['c', 'b']
        )
          .map((tag) => `<span>${tag}<input type=hidden name=tag value=${tag}></span>`)
          .join('')}</form>`,
    });
    if (its === null) return;
    // The visitor removes a tag; somebody else replaces it, which the form does not show.
    await its.page.evaluate(`document.querySelector('span').remove()`);
    await its.change();
    await its.page.locator('#hub-stale').waitFor();
    const sent = `[...new FormData(document.forms[0])].join(' ')`;
    assert.equal(await its.page.evaluate(sent), 'rev,1 tag,b');
  });

  it('keeps a form after its visitor has drawn in it', async (test) => {
    const its = await live(test, {
      body: (version) =>
        version < 3
          ? `<form><input type=hidden name=rev value=${version}><canvas></canvas></form>`
          : '',
    });
    if (its === null) return;
    await its.page.locator('canvas').click();
    await its.change();
    assert.equal(await its.page.locator('[name=rev]').inputValue(), '1');
    await its.change();
    assert.equal(await its.page.locator('canvas').count(), 1);
  });

  it('is not reloaded when the server has removed it, while somebody types in a shadow tree', async (test) => {
    const its = await live(test, { body: () => '<my-field></my-field>' });
    if (its === null) return;
    const { page } = its;
    await page.evaluate(`
      document.querySelector('my-field').attachShadow({ mode: 'open' }).innerHTML = '<input>';
    `);
    await page.fill('my-field input', 'my draft');
    await page.evaluate('document.activeElement.blur()');
    await removeFromServer(page);
    await page.locator('#hub-stale').waitFor();
    assert.equal(await page.locator('my-field input').inputValue(), 'my draft');
  });

  it('follows what a script has replaced with the same', async (test) => {
    const its = await live(test, {
      body: (version) => `<p id=text>count ${version}</p>
<ul id=list>${version === 1 ? '<li>gone</li>' : ''}<li>kept</li>${version > 2 ? '<li>third</li>' : ''}</ul>
${version === 1 ? '<p id=gone>gone</p>' : ''}`,
    });
    if (its === null) return;
    const { page, change } = its;
    await page.evaluate(`
      for (const one of document.querySelectorAll('p,ul')) one.innerHTML = one.innerHTML;
    `);
    await change();
    assert.equal(await page.locator('#text').textContent(), 'count 2');
    assert.equal(await page.locator('#list').textContent(), 'kept');
    assert.equal(await page.locator('#gone').count(), 0);
    // The script shows the change before the server sends it.
    await page.evaluate(
      `document.querySelector('#list').innerHTML = '<li>kept</li><li>third</li>'`,
    );
    await change();
    assert.equal(await page.locator('#list').textContent(), 'keptthird');
    assert.equal(await page.locator('#hub-stale').count(), 0);
  });

  it('fetches nothing when a server script with many pages has changed another page', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const asked: string[] = [];
    const told = new Map<string, number>();
    const site = await startSite(
      test,
      (request, response) => {
        request.resume();
        const { url = '' } = request;
        if (request.method === 'POST') {
          const title = /title=(\w)/.exec(url)?.[1];
          told.set(title ?? 'all', (told.get(title ?? 'all') ?? 0) + 1);
          const where = title === undefined ? {} : { Location: `/index.php?title=${title}` };
          response.writeHead(title === undefined ? 204 : 303, where).end();
          return;
        }
        asked.push(url);
        const name = /title=(\w)/.exec(url)?.[1] ?? '';
        const alias = url === '/alias' ? '<link rel=canonical href="/index.php?title=A">' : '';
        response
          .writeHead(200, { 'Content-Type': 'text/html' })
          .end(
            `<!doctype html><html><head><link rel=icon href="data:,">${alias}</head><body><p>${url} ${told.get(name) ?? 0} ${told.get('all') ?? 0} ${told.get('A') ?? 0}</p></body></html>`,
          );
      },
      { hubfile: LIVE_HUBFILE },
    );
    const browser = await launchChromium(test, executable, null);
    const open = async (path: string): Promise<Page> => {
      const page = await browser.newPage();
      const stream = page.waitForResponse((answer) => answer.url().includes('/.well-known/hub?'));
      await page.goto(site.origin + path);
      await stream;
      return page;
    };
    const change = (path: string) =>
      fetch(site.origin + path, { method: 'POST', redirect: 'manual' });
    const [a, b, alias, script] = [
      await open('/index.php?title=A'),
      await open('/index.php?title=B'),
      await open('/alias'),
      await open('/index.php'),
    ];
    asked.length = 0;
    const shows = (page: Page, text: string) => page.getByText(text, { exact: true }).waitFor();
    await change('/save?title=A');
    await Promise.all([
      shows(a, '/index.php?title=A 1 0 1'),
      shows(alias, '/alias 0 0 1'),
      shows(script, '/index.php 0 0 1'),
    ]);
    // Where the request had no query, any of its pages may have changed.
    await change('/index.php');
    await shows(b, '/index.php?title=B 0 1 1');
    await shows(a, '/index.php?title=A 1 1 1');
    assert.equal(asked.filter((url) => url === '/index.php?title=B').length, 1);
  });
});
