"""What Redis itself runs: each script is one atomic step. Text only.

`KEYS[1]` is always the hash that says which log the tables are of, and how far they are: `log_id`,
`schema_version`, `generation`, `position`, `applied`, `created_at`, `written_at`. All other keys
start with the same hash tag, so they live in the same slot of a cluster.

Layout of the keys, for the tag `{belog}` and the generation `7f3a`:

===================================  ===========================================================
`{belog}:meta`                       hash, see above
`{belog}:old`                        set of generations that are not removed yet
`{belog}:loading`                    set of generations that are loaded from a snapshot; each has a
                                     hash `{belog}:7f3a:meta` until it is whole
`{belog}:7f3a:partition:REF`         hash, a row; likewise `build`, `job_run`, `task`, `system`
`{belog}:7f3a:ids:partition`         sorted set of all ids, score 0: for the order by id
`{belog}:7f3a:ix:partition:NAME`     sorted set of ids by the index of their last event
`{belog}:7f3a:counts`                hash, `kind:state` → number of rows
===================================  ===========================================================
"""

from typing import Final

__all__ = ["BEGIN", "COUNTS", "GET_ROWS", "LIST_ROWS", "WRITE"]

WRITE: Final = """
local meta = redis.call('HMGET', KEYS[1], 'log_id', 'schema_version', 'generation', 'position',
                        'applied')
for n = 1, 5 do
  if (meta[n] or '') ~= ARGV[n] then
    return 0
  end
end
local iso_of_second = {}
local function iso_time(us)
  local second = math.floor(us / 1000000)
  local text = iso_of_second[second]
  if not text then
    local days = math.floor(second / 86400)
    local rest = second - days * 86400
    local z = days + 719468
    local era = math.floor(z / 146097)
    local doe = z - era * 146097
    local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524)
                            - math.floor(doe / 146096)) / 365)
    local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
    local mp = math.floor((5 * doy + 2) / 153)
    local month = mp < 10 and mp + 3 or mp - 9
    local year = yoe + era * 400 + (month <= 2 and 1 or 0)
    text = string.format('%04d-%02d-%02dT%02d:%02d:%02d', year, month,
                         doy - math.floor((153 * mp + 2) / 5) + 1, math.floor(rest / 3600),
                         math.floor(rest / 60) % 60, rest % 60)
    iso_of_second[second] = text
  end
  return string.format('%s.%06dZ', text, us - second * 1000000)
end

local format, find = string.format, string.find
local function spell(key, fields)
  local arguments, n = {key}, 1
  for name, value in pairs(fields) do
    local kind = type(value)
    if kind == 'number' then
      arguments[n + 1], arguments[n + 2], n = name, format('%.0f', value), n + 2
      if find(name, '_at', -3, true) then
        arguments[n + 1], arguments[n + 2], n = name .. '_iso', iso_time(value), n + 2
      end
    else
      if kind == 'table' then
        -- This encoder writes a backslash before each slash: JSON allows it, people trip over it.
        value = string.gsub(cjson.encode(value), '\\\\/', '/')
      end
      arguments[n + 1], arguments[n + 2], n = name, value, n + 2
    end
  end
  return arguments
end

local batch = cmsgpack.unpack(ARGV[10])
for _, row in ipairs(batch[1]) do
  if row[2] then
    redis.call('DEL', row[1])
  end
  redis.call('HSET', unpack(spell(row[1], row[3])))
end
for _, arguments in ipairs(batch[2]) do
  redis.call('ZREM', unpack(arguments))
end
for _, arguments in ipairs(batch[3]) do
  redis.call('ZADD', unpack(arguments))
end
for _, arguments in ipairs(batch[4]) do
  redis.call('HINCRBY', unpack(arguments))
end
redis.call('HSET', KEYS[1], 'position', ARGV[6], 'applied', ARGV[7], 'created_at', ARGV[8],
           'written_at', ARGV[9])
redis.call('PUBLISH', KEYS[2], ARGV[7])
return 1
"""
"""Writes one batch, if the tables are exactly where it starts from; otherwise nothing.

Keys: the hash, the channel. Arguments: the five values that must be there (log id, schema version,
generation, position, applied), the new position, applied, created_at, written_at, and the batch in
MessagePack: rows (key, whether it is there, fields), argument lists of ZREM, ZADD and HINCRBY.
Returns 1 or 0.

The calendar is Howard Hinnant's `civil_from_days`: https://howardhinnant.github.io/date_algorithms.html
"""

BEGIN: Final = """
if (redis.call('HGET', KEYS[1], 'generation') or '') ~= ARGV[1] then
  return 0
end
if ARGV[1] ~= '' then
  redis.call('SADD', KEYS[2], ARGV[1])
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'log_id', ARGV[3], 'schema_version', ARGV[4], 'generation', ARGV[2],
           'position', '0', 'applied', '0', 'created_at', '0', 'written_at', ARGV[5])
return 1
"""
"""Starts empty tables in a new generation, if the present one is still the one that was seen.

Keys: the hash, the set of old generations. Arguments: generation seen (empty for none), new one,
log id, schema version, written_at. Returns 1 or 0.
"""

_ROWS: Final = """
local meta = redis.call('HMGET', KEYS[1], 'applied', 'generation')
local base = ARGV[1] .. (meta[2] or '') .. ':'
local answer = {meta[1] or '0'}
"""

GET_ROWS: Final = (
    _ROWS
    + """
for n = 3, #ARGV do
  answer[#answer + 1] = redis.call('HGETALL', base .. ARGV[2] .. ':' .. ARGV[n])
end
return answer
"""
)
"""Arguments: what keys start with, the kind, ids. Returns applied, and each row as a flat list."""

LIST_ROWS: Final = (
    _ROWS
    + """
local kind, order, after, until_us, limit = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local ids = {}
if order == 'id' then
  ids = redis.call('ZRANGEBYLEX', base .. 'ids:' .. kind, after, '+', 'LIMIT', 0, limit)
else
  local entries = {}
  for n = 7, #ARGV do
    local index = base .. 'ix:' .. kind .. ':' .. ARGV[n]
    local below = after
    if until_us ~= '' then
      local low, high = 0, redis.call('ZCARD', index)
      while low < high do
        local middle = math.floor((low + high) / 2)
        local id = redis.call('ZRANGE', index, middle, middle)[1]
        local updated_at = redis.call('HGET', base .. kind .. ':' .. id, 'updated_at')
        if tonumber(updated_at) < tonumber(until_us) then
          low = middle + 1
        else
          high = middle
        end
      end
      local edge = redis.call('ZRANGE', index, low, low, 'WITHSCORES')[2]
      if edge and (below == '+inf' or tonumber(edge) < tonumber(string.sub(below, 2))) then
        below = '(' .. edge
      end
    end
    local found = redis.call('ZREVRANGEBYSCORE', index, below, '-inf', 'WITHSCORES', 'LIMIT', 0,
                             limit)
    for m = 1, #found, 2 do
      entries[#entries + 1] = {tonumber(found[m + 1]), found[m]}
    end
  end
  table.sort(entries, function(a, b) return a[1] > b[1] end)
  for n = 1, math.min(limit, #entries) do
    ids[n] = entries[n][2]
  end
end
for _, id in ipairs(ids) do
  answer[#answer + 1] = redis.call('HGETALL', base .. kind .. ':' .. id)
end
return answer
"""
)
"""Arguments: what keys start with, the kind, the order, where it starts as a bound of Redis, a time
in microseconds that rows must be older than or nothing, most rows, and, for the order `recent`,
names of indexes that have no row in common. Returns applied, and each row as a flat list."""

COUNTS: Final = (
    _ROWS
    + """
answer[2] = redis.call('HGETALL', base .. 'counts')
return answer
"""
)
"""Arguments: what keys start with. Returns applied, and the counters as a flat list."""
