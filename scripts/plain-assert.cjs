// What stands in for `node:assert` in the libraries of the bundle. Where an assertion without a message
// fails, Node's own reads the file of the call for its text and parses all of it: of a bundle, for seconds,
// in which nothing else is done.
class AssertionError extends Error {
  name = 'AssertionError';
  code = 'ERR_ASSERTION';

  constructor({ message, actual, expected, operator }) {
    super(message ?? `An assertion failed (${operator})`);
    Object.assign(this, { actual, expected, operator, generatedMessage: message === undefined });
  }
}

function check(holds, message, actual, expected, operator) {
  if (holds) return;
  if (message instanceof Error) throw message;
  throw new AssertionError({ message, actual, expected, operator });
}

function assert(value, message) {
  check(Boolean(value), message, value, true, '==');
}

assert.ok = assert;
assert.equal = (actual, expected, message) => {
  // As loosely as Node's, which libraries of its time mean.
  // oxlint-disable-next-line eqeqeq
  check(actual == expected, message, actual, expected, '==');
};
assert.strictEqual = (actual, expected, message) => {
  check(Object.is(actual, expected), message, actual, expected, 'strictEqual');
};
assert.notStrictEqual = (actual, expected, message) => {
  check(!Object.is(actual, expected), message, actual, expected, 'notStrictEqual');
};
assert.fail = (message) => check(false, message, undefined, undefined, 'fail');
assert.AssertionError = AssertionError;
assert.default = assert;

module.exports = assert;
