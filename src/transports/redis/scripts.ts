import { createHash } from 'node:crypto';
import { MAX_ID_BYTES } from '../../hub/update.ts';

/** Of what is stored. A store of a later version is left alone. */
export const FORMAT = 1;

/** A step that Redis takes as a whole or not at all. */
export interface Script {
  readonly text: string;
  readonly sha: string;
}

/*
 * Appends a group. KEYS: log, ids, repeated, meta.
 * ARGV: group key, position after which an earlier attempt may stand or '', updates kept or 0,
 * milliseconds kept or 0, how many to evict at most, then id and rest of each update.
 * Returns the position of the last one.
 */
export const APPEND = script(`
local log, ids, repeated, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, since, size, age, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local count = (#ARGV - 5) / 2
local function place(position) return string.format('%.0f', position) .. '-1' end
local function number(text) return tonumber(string.match(text, '^%d+')) end
local state = redis.call('HMGET', meta, 'version', 'position', 'key')
if state[1] and tonumber(state[1]) > ${FORMAT} then
  return redis.error_reply('TOONEW the store was written by a later version of hubgate')
end
if since ~= '' then
  local from = since
  while true do
    local page = redis.call('XRANGE', log, '(' .. from, '+', 'COUNT', 1000)
    for _, entry in ipairs(page) do
      from = entry[1]
      if entry[2][2] == group .. ':1' then return place(number(entry[1]) + count - 1) end
    end
    if #page < 1000 then break end
  end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local position, previous, id = tonumber(state[2] or 0), state[3] or '', ''
for index = 1, count do
  position = position + 1
  id = ARGV[4 + index * 2]
  local key = group .. ':' .. index
  redis.call('XADD', log, place(position), 'k', key, 'p', previous, 'a', now, 'i', id, 'u', ARGV[5 + index * 2])
  previous = key
  if #id <= ${MAX_ID_BYTES} and redis.call('HSETNX', ids, id, position) == 0 then
    redis.call('ZADD', repeated, 0, id .. '\\0' .. string.format('%016.0f', position))
  end
end
redis.call('HSET', meta, 'version', ${FORMAT}, 'position', position, 'key', previous, 'id', id)
local surplus = size > 0 and redis.call('XLEN', log) - size or 0
local left = 0
for _ = 1, most do
  local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  if not oldest or number(oldest[1]) == position then break end
  if surplus <= 0 and not (age > 0 and tonumber(oldest[2][6]) < now - age) then break end
  surplus = surplus - 1
  local gone = oldest[2][8]
  redis.call('XDEL', log, oldest[1])
  if redis.call('HGET', ids, gone) == string.match(oldest[1], '^%d+') then
    local next = redis.call('ZRANGEBYLEX', repeated, '[' .. gone .. '\\0', '[' .. gone .. '\\0:', 'LIMIT', 0, 1)[1]
    if next then
      redis.call('HSET', ids, gone, string.format('%.0f', tonumber(string.sub(next, -16))))
      redis.call('ZREM', repeated, next)
    else redis.call('HDEL', ids, gone) end
  end
end
return place(position)
`);

/*
 * Reads a page. KEYS: log. ARGV: first and last place, how many, and after how many bytes it ends.
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

/* The places of a member in the lists of its matchers, by the digests in the first line of its entry. */
const PLACES = `
local function places(entry, order, member)
  local found = {}
  for digest in string.gmatch(string.match(entry, '^[^\\n]*'), '%x+') do
    found[#found + 1] = digest .. ' ' .. string.format('%016.0f', order) .. ' ' .. member
  end
  return found
end
`;

/* Takes a member off and returns its entry. KEYS begin with: present, records, owned, matched. */
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

/*
 * Enters subscribers. KEYS: present, records, owned, matched, processes, meta.
 * ARGV: process, milliseconds of its lease, then subscriber and entry of each. Returns the entries of
 * those that were not there.
 */
export const ENTER = script(`${PLACES}
local clock = redis.call('TIME')
redis.call('ZADD', KEYS[5], clock[1] * 1000 + ARGV[2], ARGV[1])
local entered = {}
for index = 3, #ARGV, 2 do
  local member, entry = ARGV[1] .. ' ' .. ARGV[index], ARGV[index + 1]
  if redis.call('HSETNX', KEYS[2], member, entry) == 1 then
    local order = redis.call('HINCRBY', KEYS[6], 'order', 1)
    redis.call('ZADD', KEYS[1], order, member)
    redis.call('ZADD', KEYS[3], 0, member)
    for _, place in ipairs(places(entry, order, member)) do redis.call('ZADD', KEYS[4], 0, place) end
    entered[#entered + 1] = entry
  end
end
return entered
`);

/* Takes a subscriber off. KEYS: present, records, owned, matched. ARGV: process and subscriber. */
export const LEAVE = script(`${TAKE_OFF}
take_off(ARGV[1] .. ' ' .. ARGV[2])
`);

/*
 * Renews a lease, takes off some of what a dead process has entered, and claims what is to be
 * announced: what is taken off now, and what whoever had claimed it has not announced in time.
 * KEYS: present, records, owned, matched, processes, departed, claims. ARGV: process, milliseconds of
 * its lease, how many at most, a name for these departures. Returns whether the lease was still there,
 * then member and departure by turns; a departure is its name, a line break, and the entry.
 */
export const BEAT = script(`${TAKE_OFF}
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local most = tonumber(ARGV[3])
local lived = tonumber(redis.call('ZSCORE', KEYS[5], ARGV[1]) or 0) > 0 and 1 or 0
redis.call('ZADD', KEYS[5], now + ARGV[2], ARGV[1])
local claimed = redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', now, 'LIMIT', 0, most)
local dead = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '(' .. now, 'LIMIT', 0, 1)[1]
if dead and #claimed < most then
  redis.call('ZADD', KEYS[5], 0, dead)
  local members = redis.call('ZRANGEBYLEX', KEYS[3], '[' .. dead .. ' ', '(' .. dead .. '!', 'LIMIT', 0, most - #claimed)
  if #members < most - #claimed then redis.call('ZREM', KEYS[5], dead) end
  for _, member in ipairs(members) do
    local entry = take_off(member)
    if entry then
      redis.call('HSET', KEYS[6], member, ARGV[4] .. '\\n' .. entry)
      claimed[#claimed + 1] = member
    end
  end
end
local told = {}
for _, member in ipairs(claimed) do
  redis.call('ZADD', KEYS[7], now + ARGV[2], member)
  told[#told + 1] = member
  told[#told + 1] = redis.call('HGET', KEYS[6], member) or ''
end
return {lived, told}
`);

/* Members have been announced. KEYS: departed, claims. ARGV: members. */
export const ANNOUNCED = script(`
for _, member in ipairs(ARGV) do
  redis.call('HDEL', KEYS[1], member)
  redis.call('ZREM', KEYS[2], member)
end
`);

/* Takes a process off, as if it were dead. KEYS and ARGV as of BEAT, without a lease. */
export const QUIT = script(`${TAKE_OFF}
local members = redis.call('ZRANGEBYLEX', KEYS[3], '[' .. ARGV[1] .. ' ', '(' .. ARGV[1] .. '!', 'LIMIT', 0, ARGV[2])
for _, member in ipairs(members) do take_off(member) end
if #members < tonumber(ARGV[2]) then redis.call('ZREM', KEYS[5], ARGV[1]) end
return #members
`);

export const SCRIPTS: readonly Script[] = [APPEND, READ, ENTER, LEAVE, BEAT, ANNOUNCED, QUIT];

function script(text: string): Script {
  return { text, sha: createHash('sha1').update(text).digest('hex') };
}
