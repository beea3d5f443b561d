/*
 * All types of the configuration of a gateway. Each is derived from the description of its members, next to
 * their defaults and their shapes in data.
 */
export type * from './bind-address.ts';
export type * from './shape-config.ts';
export type * from './shape-hub.ts';
export type * from './shape-options.ts';
