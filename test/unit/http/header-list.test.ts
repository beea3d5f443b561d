import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HeaderList } from '../../../src/http/header-list.ts';

describe('a list of fields', () => {
  it('shares nothing with other lists, whether it began empty or as a copy', () => {
    const [one, two] = [new HeaderList(), new HeaderList()];
    one.append('A', '1');
    two.append('B', '2');
    const copy = one.clone();
    copy.set('A', '3');
    copy.append('C', '4');
    const raw = ['X', 'x'];
    const read = HeaderList.fromRaw(raw);
    raw[1] = 'y';
    assert.deepEqual(one.toRaw(), ['A', '1']);
    assert.deepEqual(two.toRaw(), ['B', '2']);
    assert.deepEqual(copy.toRaw(), ['A', '3', 'C', '4']);
    assert.deepEqual(read.toRaw(), ['X', 'x']);
    assert.deepEqual([new HeaderList().toRaw(), new HeaderList().clone().toRaw()], [[], []]);
  });

  it('keeps its fields in order, however many are added beyond its first room', () => {
    const list = HeaderList.fromRaw(['A', '1']);
    const expected = ['A', '1'];
    for (let i = 0; i < 300; i += 1) {
      list.append(`X-${i}`, `${i}`);
      expected.push(`X-${i}`, `${i}`);
    }
    assert.deepEqual(list.toRaw(), expected);
    assert.equal(list.length, 301);
    assert.deepEqual(list.clone().toRaw(), expected);
  });

  it('forgets what was deleted, also for what is added afterwards', () => {
    const list = HeaderList.fromRaw(['A', '1', 'b', '2', 'a', '3', 'C', '4']);
    list.delete('A');
    assert.deepEqual([list.toRaw(), list.length], [['b', '2', 'C', '4'], 2]);
    assert.deepEqual([list.has('a'), list.get('a'), list.getAll('a')], [false, undefined, []]);
    list.deleteWhere((key) => key === 'b');
    list.append('D', '5');
    list.set('c', '6');
    assert.deepEqual(list.toRaw(), ['C', '6', 'D', '5']);
    list.deleteWhere(() => true);
    assert.deepEqual([list.isEmpty, list.toRaw(), [...list]], [true, [], []]);
  });

  it('reads no more of a list than it is told to', () => {
    assert.deepEqual(HeaderList.fromRaw(['A', '1', 'B', '2'], 2).toRaw(), ['A', '1']);
    assert.deepEqual(HeaderList.fromRaw(['A', '1', 'B']).toRaw(), ['A', '1']);
  });
});
