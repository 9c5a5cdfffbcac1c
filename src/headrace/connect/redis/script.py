"""What runs inside Redis: a part of a batch and, with the last part, the place; nobody sees it half done.

Redis writes a script's effects to its own log as one, so after a crash of Redis rows and place are those of the same
moment. The arguments are the owner, the place or nothing, the time to live in seconds or 0, and the operations.
"""

from typing import Final

OK, TAKEN, LOST, REPLACED = b"ok", b"taken", b"lost", b"replaced"

# Operations, as JSON: ["set", KEY, TEXT], ["hash", KEY, [NAME, VALUE, …]], ["some", KEY, [NAME, VALUE, …], [NULL, …]]
# and ["gone", KEY]. All names and values are texts, so nothing is lost between the two languages.
APPLY: Final = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner then return 'lost' end
if owner == '' then return 'replaced' end
if owner ~= ARGV[1] then return 'taken' end
local place, ttl = ARGV[2], tonumber(ARGV[3])
for _, operation in ipairs(cjson.decode(ARGV[4])) do
  local what, key = operation[1], operation[2]
  if what == 'set' then
    if ttl > 0 then redis.call('SET', key, operation[3], 'EX', ttl) else redis.call('SET', key, operation[3]) end
  elseif what == 'hash' then
    redis.call('DEL', key)
    if #operation[3] > 0 then redis.call('HSET', key, unpack(operation[3])) end
    if ttl > 0 then redis.call('EXPIRE', key, ttl) end
  elseif what == 'some' then
    -- A row that expired is not brought back in part: who misses it loads it whole.
    if ttl == 0 or redis.call('EXISTS', key) == 1 then
      if #operation[3] > 0 then redis.call('HSET', key, unpack(operation[3])) end
      for _, name in ipairs(operation[4]) do redis.call('HDEL', key, name) end
      if ttl > 0 then redis.call('EXPIRE', key, ttl) end
    end
  else
    redis.call('UNLINK', key)
  end
end
if place ~= '' then redis.call('HSET', KEYS[1], 'place', place) end
return 'ok'
"""

# The state of what was built takes the place of the state in use, without an owner; the prefix that was in use is told.
SWITCH: Final = """
if redis.call('EXISTS', KEYS[2]) == 0 then return false end
local old = redis.call('HGET', KEYS[1], 'prefix')
redis.call('HSET', KEYS[2], 'owner', '')
redis.call('RENAME', KEYS[2], KEYS[1])
return old or ''
"""
