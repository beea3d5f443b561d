// A part of the bundle: see loaded-when-used.mjs.

/** A function or class that acts as the one that `load` returns. `load` is called when it is used for the first time. */
export function whenUsed(load) {
  let loaded;
  const real = () => (loaded ??= load());
  return new Proxy(function () {}, {
    apply: (_, self, args) => Reflect.apply(real(), self, args),
    construct: (_, args) => Reflect.construct(real(), args),
    // Static members, and `prototype`, which `instanceof` asks for.
    get: (_, name) => Reflect.get(real(), name),
  });
}
