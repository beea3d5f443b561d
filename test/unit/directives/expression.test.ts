import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseExpression } from '../../../src/matchers/expression/program.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

describe('expressions', () => {
  it('are refused if their running time is unbounded', () => {
    const nested =
      '"a".split("").exists(a, "b".split("").exists(b, "c".split("").exists(c, c == a)))';
    assert.throws(() => parseExpression(nested), /macros are nested/);
    assert.throws(() => parseExpression(`${'('.repeat(60)}true${')'.repeat(60)}`), {
      code: 'invalid-expression',
    });
    const long = Array.from({ length: 1100 }, () => 'true').join(' || ');
    assert.throws(() => parseExpression(long), { code: 'invalid-expression' });
    assert.throws(() => parseExpression(`"${'x'.repeat(17_000)}" == ""`), /longer than/);
  });

  it('match text in linear time', () => {
    const slow = parseExpression('{header.X-A}.matches("^(a+)+$")');
    const exchange = fakeExchange({});
    exchange.headers.append('X-A', `${'a'.repeat(5000)}!`);
    assert.equal(slow.holds(exchange, new Map()), false);
  });

  it('limit the results of a split', () => {
    const many = parseExpression('{header.X-A}.split(",").size() == 200');
    const exchange = fakeExchange({});
    exchange.headers.append('X-A', 'a,'.repeat(5000));
    assert.equal(many.holds(exchange, new Map()), true);
  });

  it('pass arguments to matchers exactly as written', () => {
    const { conditions } = parseExpression(`file({'try_files': [{path}, "/a"]}) && path('/a')`);
    const kinds = [...conditions.values()].map(({ kind }) => kind);
    assert.deepEqual(kinds, ['file', 'path']);
    assert.throws(() => parseExpression(`path({path} + "a")`), /takes texts/);
    assert.throws(() => parseExpression(`path_regexp('a', 'b', 'c')`), /these arguments/);
  });

  it('have no value if a number is to be read from a text that is none, so that nobody can bypass a guard', () => {
    const level = (text: string, value: string | null): unknown => {
      const exchange = fakeExchange({});
      if (value !== null) exchange.headers.append('X-Level', value);
      return parseExpression(text).holds(exchange, new Map());
    };
    for (const kind of ['int', 'uint', 'double']) {
      const guard = `${kind}({header.X-Level}) < ${kind}("4")`;
      for (const none of [null, '', ' 1', '0b11', '0X3', '0x1', 'one']) {
        assert.throws(() => level(guard, none), { status: 500 }, `${kind} ${none}`);
      }
      assert.equal(level(guard, '3'), true);
      assert.equal(level(guard, '9'), false);
    }
    assert.equal(level('double({header.X-Level}) == 1.5e3 && int("7") + 1 == 8', '1.5E+3'), true);
    assert.equal(level('int(double({header.X-Level})) == 2', '2.7'), true);
    assert.equal(level('(int({header.X-Level}) + 1) * 2 == 6 && {header.X-Level} > 1', '2'), true);
  });

  it('read what is compared with a number or a boolean as one', () => {
    const holds = (text: string): unknown => {
      const exchange = fakeExchange({ target: '/?n=5&d=1.5&t=true&text=abc', host: 'a:8080' });
      exchange.variables.set('vars.n', '5');
      exchange.variables.set('resp.status_code', '404');
      return parseExpression(text).holds(exchange, new Map());
    };
    for (const yes of [
      '{query.n} == 5',
      "{query.n} == '5'",
      '3 < {query.n} && {vars.n} >= 5',
      '{query.n} in [4, 5]',
      "{query.n} in ['4', '5']",
      '{query.d} > 1.25',
      '{query.t} == true && !({query.t} != true)',
      '{query.n} > -1',
      '{port} == 8080',
      '{resp.status_code} == 404 && {resp.status_code} / 100 == 4',
      '{http.intercept.status_code} in [404, 410]',
      '({query.n} == 5 ? {query.text} : "") == "abc"',
      'constant("5") > 4 && constant("5") == "5"',
      'constant("true") && !constant("false") && (constant("true") ? true : false)',
      'constant("5") + 1 > 5 && 2 * {vars.n} == 10',
      '{query.n} in ["5", 6]',
    ]) {
      assert.equal(holds(yes), true, yes);
    }
    for (const no of ['{query.n} == 6', '{query.text} == 5', '{query.none} == false']) {
      assert.equal(holds(no), false, no);
    }
    assert.throws(() => holds('{query.text} > 5'), { status: 500 });
  });

  it('fail the request if they have no value', () => {
    const { holds } = parseExpression('int({query.n}) > 5');
    assert.throws(() => holds(fakeExchange({ target: '/?n=x' }), new Map()), { status: 500 });
  });
});
