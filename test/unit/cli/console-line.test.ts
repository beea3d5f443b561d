import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import { consoleLine } from '../../../src/cli/log-output.ts';

const LINE = JSON.stringify({
  level: 'warn',
  time: '2026-11-22T05:10:27.575Z',
  a: 'b',
  msg: 'said',
});

describe('a log line on a terminal', () => {
  it('is plain text without colour', () => {
    assert.equal(consoleLine(LINE, false), '05:10:27.575 WARN  said a="b"\n');
  });

  it('shows control characters from clients as text, so that the terminal does not execute them', () => {
    const said = `\u009b31m \u009d0;title\u009c \u001b[2J \u007f é`;
    const line = consoleLine(JSON.stringify({ level: 'info', msg: said, field: said }), false);
    assert.match(line.slice(0, -1), /^\P{Cc}+$/u);
    assert.ok(line.includes('\\u009b31m \\u009d0;title\\u009c \\u001b[2J \\u007f é field='));
  });

  it('shows the level in its colour, and dims everything but the message', () => {
    const line = consoleLine(LINE, true);
    assert.ok(line.includes('\u001b[33mWARN \u001b[0m'));
    assert.ok(line.includes('\u001b[2m a="b"\u001b[0m'));
    // Nothing of it is lost.
    assert.equal(stripVTControlCharacters(line), consoleLine(LINE, false));
  });
});
