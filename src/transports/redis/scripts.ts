import { hash } from 'node:crypto';
import { SHARED_PRESENCE_EVENTS_KEPT } from '../../hub/transport.ts';
import { MAX_ID_BYTES } from '../../hub/update.ts';

/** Version of the stored format. A store with a later version is not touched. */
export const FORMAT = 1;

/** How long the store knows the last group of a writer: longer than a lost attempt may be under way. */
const WRITER_KEPT_MS = 24 * 60 * 60 * 1000;

/** A step that Redis executes completely or not at all. */
export interface Script {
  readonly text: string;
  readonly sha: string;
}

/*
 * Appends a group, once for each number that its writer gives it. KEYS: log, ids, repeated, meta, events,
 * writer. ARGV: group key; number of the group, greater than those before it, or '' to append it whenever it is
 * asked; updates to keep, or 0; milliseconds to keep them, or 0; most entries to evict; then for each update its
 * id, the rest, and 1 for a presence event, o for one that is skipped if its id is known, or ''. Returns the
 * position of the last one and, after a space, its key, which is empty if all were skipped.
 *
 * A script that fails keeps what it has written, so all keys are read before the first one is written. If the server
 * has evicted one of them, the positions continue, and nobody continues after what may be gone.
 */
export const APPEND = script(`
local log, ids, repeated, meta, events, writer = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local group, batch, size, age, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local count = (#ARGV - 5) / 3
local function place(position) return string.format('%.0f', position) .. '-1' end
local function number(text) return tonumber(string.match(text, '^%d+')) end
local function first(from) return redis.call('XRANGE', log, from, '+', 'COUNT', 1)[1] end
local state = redis.call('HMGET', meta, 'version', 'position', 'key', 'evictedUpdates')
if state[1] and tonumber(state[1]) > ${FORMAT} then
  return redis.error_reply('TOONEW the store was written by a later version of hubgate')
end
if batch ~= '' then
  local known = redis.call('HMGET', writer, 'batch', 'last')
  if known[1] and tonumber(known[1]) >= tonumber(batch) then return known[2] end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local position, previous, id = tonumber(state[2] or 0), state[3] or '', ''
local added, length = 0, redis.call('XLEN', log)
redis.call('LLEN', events)
redis.call('HEXISTS', ids, '')
redis.call('ZSCORE', repeated, '')
if first(place(position + 1)) then
  local top = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  position, previous = number(top[1]), top[2][2]
  redis.call('HSET', meta, 'evictedEvents', position)
elseif position > 0 and length == 0 then
  for _, key in ipairs({ids, repeated, events}) do redis.call('PEXPIRE', key, 0) end
  redis.call('HSET', meta, 'evictedUpdates', position, 'evictedEvents', position)
end
if not state[4] then
  local oldest = first('-')
  redis.call('HSET', meta, 'evictedUpdates', oldest and number(oldest[1]) - 1 or position)
end
for index = 1, count do
  local kind = ARGV[5 + index * 3]
  if kind ~= 'o' or redis.call('HEXISTS', ids, ARGV[3 + index * 3]) == 0 then
    position, added = position + 1, added + 1
    id = ARGV[3 + index * 3]
    local key = group .. ':' .. added
    local fields = {'k', key, 'p', previous, 'a', now, 'i', id, 'u', ARGV[4 + index * 3]}
    if kind == '1' then
      fields[11], fields[12] = 'e', '1'
      redis.call('RPUSH', events, string.format('%.0f', position))
    else redis.call('HSET', meta, 'update', id) end
    redis.call('XADD', log, place(position), unpack(fields))
    previous = key
    if #id <= ${MAX_ID_BYTES} and redis.call('HSETNX', ids, id, position) == 0 then
      redis.call('ZADD', repeated, 0, id .. '\\0' .. string.format('%016.0f', position))
    end
  end
end
local last = place(position) .. ' ' .. (added > 0 and previous or '')
if batch ~= '' then
  redis.call('HSET', writer, 'batch', batch, 'last', last)
  redis.call('PEXPIRE', writer, ${WRITER_KEPT_MS})
end
if added == 0 then return last end
redis.call('HSET', meta, 'version', ${FORMAT}, 'position', position, 'key', previous, 'id', id)
local function evict(entry)
  local at, gone = string.match(entry[1], '^%d+'), entry[2][8]
  redis.call('XDEL', log, entry[1])
  if redis.call('HGET', ids, gone) == at then
    local next = redis.call('ZRANGEBYLEX', repeated, '[' .. gone .. '\\0', '[' .. gone .. '\\0:', 'LIMIT', 0, 1)[1]
    if next then
      redis.call('HSET', ids, gone, string.format('%.0f', tonumber(string.sub(next, -16))))
      redis.call('ZREM', repeated, next)
    else redis.call('HDEL', ids, gone) end
  else redis.call('ZREM', repeated, gone .. '\\0' .. string.format('%016.0f', tonumber(at))) end
  redis.call('HSET', meta, entry[2][11] and 'evictedEvents' or 'evictedUpdates', at)
end
local function too_old(entry) return age > 0 and tonumber(entry[2][6]) < now - age end
local updates = length + added - redis.call('LLEN', events)
local left = most
while left > 0 do
  local oldest = first('-')
  if not oldest or not (size > 0 and updates > size or updates > 1 and too_old(oldest)) then break end
  evict(oldest)
  if oldest[2][11] then redis.call('LPOP', events) else updates = updates - 1 end
  left = left - 1
end
while left > 0 do
  local event = redis.call('LINDEX', events, 0)
  if not event or tonumber(event) == position then break end
  local entry = redis.call('XRANGE', log, event .. '-1', event .. '-1')[1]
  if entry and redis.call('LLEN', events) <= ${SHARED_PRESENCE_EVENTS_KEPT} and not too_old(entry) then break end
  if entry then evict(entry) end
  redis.call('LPOP', events)
  left = left - 1
end
return last
`);

/*
 * Reads a page. KEYS: log. ARGV: first and last stream id, number of entries, and the bytes after which the
 * page ends.
 */
export const READ = script(`
local page, bytes, from = {}, 0, ARGV[1]
while #page < tonumber(ARGV[3]) and bytes < tonumber(ARGV[4]) do
  local some = redis.call('XRANGE', KEYS[1], from, ARGV[2], 'COUNT', math.min(8, ARGV[3] - #page))
  if #some == 0 then break end
  for _, entry in ipairs(some) do
    if bytes >= tonumber(ARGV[4]) then break end
    page[#page + 1] = entry
    bytes = bytes + #entry[2][10]
    from = '(' .. entry[1]
  end
end
return page
`);

/* Bytes of bodies that MARKS passes over, because they occupy the server although nobody gets them. */
const PASSED_BYTES = 16 * 1024 * 1024;

/*
 * The newest entries without their bodies, the newest first. KEYS: log. ARGV: last and first stream id, number of
 * entries. Returns stream id, key, id, and e for a presence event, of each. There are fewer if they are large.
 */
export const MARKS = script(`
local marks, bytes, to = {}, 0, ARGV[1]
while #marks < tonumber(ARGV[3]) and bytes < ${PASSED_BYTES} do
  local some = redis.call('XREVRANGE', KEYS[1], to, ARGV[2], 'COUNT', math.min(8, ARGV[3] - #marks))
  if #some == 0 then break end
  for _, entry in ipairs(some) do
    marks[#marks + 1] = {entry[1], entry[2][2], entry[2][8], entry[2][11] or ''}
    bytes = bytes + #entry[2][10]
    to = '(' .. entry[1]
  end
end
return marks
`);

/* The positions of a member in the lists of its matchers, by the digests in the first line of its entry. */
const PLACES = `
local function places(entry, order, member)
  local found = {}
  for digest in string.gmatch(string.match(entry, '^[^\\n]*'), '%x+') do
    found[#found + 1] = digest .. ' ' .. string.format('%016.0f', order) .. ' ' .. member
  end
  return found
end
`;

/* Removes a member and returns its entry. KEYS begin with: present, records, owned, matched. */
const TAKE_OFF = `${PLACES}
local function take_off(member)
  local entry, order = redis.call('HGET', KEYS[2], member), redis.call('ZSCORE', KEYS[1], member)
  if entry and order then
    for _, place in ipairs(places(entry, order, member)) do redis.call('ZREM', KEYS[4], place) end
  end
  redis.call('ZREM', KEYS[1], member)
  redis.call('HDEL', KEYS[2], member)
  redis.call('ZREM', KEYS[3], member)
  return entry
end
`;

/* Renews the lease of a process (ARGV[1], in KEYS[5]) until a time. Returns 1 if it still existed, otherwise 0. */
const RENEW = `
local function renew(till)
  local lived = tonumber(redis.call('ZSCORE', KEYS[5], ARGV[1]) or 0) > 0 and 1 or 0
  redis.call('ZADD', KEYS[5], till, ARGV[1])
  return lived
end
`;

/*
 * Enters subscribers. KEYS: present, records, owned, matched, processes, departed, meta. ARGV: process,
 * milliseconds of its lease, then subscriber and entry of each. Returns whether the lease still existed, and
 * for each subscriber whether it is new, was present, or is new while a process has claimed to announce its
 * state.
 */
export const ENTER = script(`${PLACES}${RENEW}
local clock = redis.call('TIME')
local lived = renew(clock[1] * 1000 + ARGV[2])
local states = {}
for index = 3, #ARGV, 2 do
  local member, entry = ARGV[1] .. ' ' .. ARGV[index], ARGV[index + 1]
  local state = 'there'
  if redis.call('HSETNX', KEYS[2], member, entry) == 1 then
    local order = redis.call('HINCRBY', KEYS[7], 'order', 1)
    redis.call('ZADD', KEYS[1], order, member)
    redis.call('ZADD', KEYS[3], 0, member)
    for _, place in ipairs(places(entry, order, member)) do redis.call('ZADD', KEYS[4], 0, place) end
    state = redis.call('HGET', KEYS[6], member) and 'claimed' or 'new'
  end
  states[#states + 1] = state
end
return {lived, states}
`);

/* Claims to announce a member, unless another process has; adds it and its claim to a list. */
const CLAIM = `
local function claim(departed, claims, member, text, till, list)
  if redis.call('HSETNX', departed, member, text) == 0 then return end
  redis.call('ZADD', claims, till, member)
  list[#list + 1] = member
  list[#list + 1] = text
end
`;

/*
 * Removes subscribers, and claims to announce that. KEYS: present, records, owned, matched, processes,
 * departed, claims. ARGV: process, milliseconds of a claim, a name for it, subscribers. Returns member and
 * claim alternately. A claim is its name, with + before it if the member is present, a line break, and the
 * entry.
 */
export const LEAVE = script(`${TAKE_OFF}${CLAIM}
local clock = redis.call('TIME')
local till = clock[1] * 1000 + ARGV[2]
local claimed = {}
for index = 4, #ARGV do
  local member = ARGV[1] .. ' ' .. ARGV[index]
  local entry = take_off(member)
  if entry then claim(KEYS[6], KEYS[7], member, ARGV[3] .. '\\n' .. entry, till, claimed) end
end
return claimed
`);

/*
 * Renews a lease if requested, removes some entries of dead processes, and claims the pending announcements:
 * those of the removed entries, and those with an expired claim. KEYS as for LEAVE. ARGV: process,
 * milliseconds of its lease, a name for these claims, their maximum number, 1 if the lease is renewed.
 * Returns whether the lease still existed, then claims as LEAVE does.
 */
export const BEAT = script(`${TAKE_OFF}${CLAIM}${RENEW}
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local till = now + ARGV[2]
local most = tonumber(ARGV[4])
local lived = ARGV[5] == '1' and renew(till) or 1
local claimed = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', now, 'LIMIT', 0, most)) do
  redis.call('ZADD', KEYS[7], till, member)
  claimed[#claimed + 1] = member
  claimed[#claimed + 1] = redis.call('HGET', KEYS[6], member) or ''
end
local left = most - #claimed / 2
local dead = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '(' .. now, 'LIMIT', 0, 1)[1]
if dead and left > 0 then
  redis.call('ZADD', KEYS[5], 0, dead)
  local members = redis.call('ZRANGEBYLEX', KEYS[3], '[' .. dead .. ' ', '(' .. dead .. '!', 'LIMIT', 0, left)
  if #members < left then redis.call('ZREM', KEYS[5], dead) end
  for _, member in ipairs(members) do
    local entry = take_off(member)
    if entry then claim(KEYS[6], KEYS[7], member, ARGV[3] .. '\\n' .. entry, till, claimed) end
  end
end
return {lived, claimed}
`);

/*
 * Marks members as announced, either as present or as absent. If the state is still the same, the claim is
 * settled; otherwise it continues with a new name. KEYS: records, departed, claims. ARGV: milliseconds of a
 * claim, a name, then member and 1 or 0 alternately. Returns claims as LEAVE does.
 */
export const SETTLE = script(`
local clock = redis.call('TIME')
local till = clock[1] * 1000 + ARGV[1]
local claimed = {}
for index = 3, #ARGV, 2 do
  local member, announced = ARGV[index], ARGV[index + 1]
  local text = redis.call('HGET', KEYS[2], member)
  local entry = redis.call('HGET', KEYS[1], member)
  if (entry and '1' or '0') == announced then
    redis.call('HDEL', KEYS[2], member)
    redis.call('ZREM', KEYS[3], member)
  elseif text then
    local name = entry and '+' .. ARGV[2] or ARGV[2]
    text = name .. '\\n' .. (entry or string.sub(text, string.find(text, '\\n') + 1))
    redis.call('HSET', KEYS[2], member, text)
    redis.call('ZADD', KEYS[3], till, member)
    claimed[#claimed + 1] = member
    claimed[#claimed + 1] = text
  end
end
return claimed
`);

/*
 * Removes a process without any announcement. KEYS begin with: present, records, owned, matched, processes.
 * ARGV: process, most subscribers to remove.
 */
export const QUIT = script(`${TAKE_OFF}
local members = redis.call('ZRANGEBYLEX', KEYS[3], '[' .. ARGV[1] .. ' ', '(' .. ARGV[1] .. '!', 'LIMIT', 0, ARGV[2])
for _, member in ipairs(members) do take_off(member) end
if #members < tonumber(ARGV[2]) then redis.call('ZREM', KEYS[5], ARGV[1]) end
return #members
`);

/*
 * Counts an event in a sliding window. KEYS: the key's hash. ARGV: milliseconds of a window, most events
 * within its length. Returns the counts of the current and the previous window, and how many milliseconds ago
 * the current one began. The event is counted only if it is allowed.
 */
export const COUNT = script(`
local window, events = tonumber(ARGV[1]), tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local index = math.floor(now / window)
local state = redis.call('HMGET', KEYS[1], 'w', 'c', 'p')
local known, current, previous = tonumber(state[1] or index), tonumber(state[2] or 0), tonumber(state[3] or 0)
if index > known then
  previous = index == known + 1 and current or 0
  current = 0
end
local elapsed = now - index * window
if previous * (1 - elapsed / window) + current + 1 <= events then
  redis.call('HSET', KEYS[1], 'w', index, 'c', current + 1, 'p', previous)
  redis.call('PEXPIRE', KEYS[1], window * 2)
end
return {current, previous, elapsed}
`);

export const SCRIPTS: readonly Script[] = [
  APPEND,
  READ,
  MARKS,
  ENTER,
  LEAVE,
  BEAT,
  SETTLE,
  QUIT,
  COUNT,
];

function script(text: string): Script {
  return { text, sha: hash('sha1', text, 'hex') };
}
