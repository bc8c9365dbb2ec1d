-- ARGV: 2 key, 3 generation and 4 sequence of its snapshot, 5 all its tags, 6 those that are
-- indexed, 7 record, 8 keep_until, 9 seconds until Redis may drop it, 10 size, 11 worth,
-- 12 the shard's bound, 13 model, 14 tenant, 15 scope, 16 limit of uses that count for a rank,
-- 17 space of its vector, or '' where it has none in Redis.
local key, seen, size, worth = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[10]), tonumber(ARGV[11])
if ARGV[3] ~= generation or seen > sequence then return {'generation', 0} end
local hard, soft = last_purges(split(ARGV[5]))
if seen < floor or hard > seen or soft > seen then return {'purged', 0} end

local uses = take_out(key) or 1
redis.call('ZREM', deletions_key, key)
local evicted = 0
while tonumber(redis.call('HGET', state_key, 'bytes') or 0) + size > tonumber(ARGV[12]) do
  local victim = redis.call('ZPOPMIN', ranks_key)
  if not victim[1] then break end
  redis.call('HSET', state_key, 'inflation', victim[2])
  evicted = evicted + free(victim[1])
end

local change = next_change()
redis.call('HSET', entry_key(key), 'generation', generation, 'sequence', ARGV[4],
  'tags', ARGV[5], 'indexed', ARGV[6], 'record', ARGV[7], 'keep_until', ARGV[8],
  'change', change, 'model', ARGV[13], 'tenant', ARGV[14], 'scope', ARGV[15],
  'space', ARGV[17])
redis.call('EXPIRE', entry_key(key), ARGV[9])
redis.call('ZADD', changes_key, change, key)
if ARGV[17] ~= '' then redis.call('ZADD', owed_key, change, key) end
for _, tag in ipairs(split(ARGV[6])) do redis.call('SADD', tag_key(tag), key) end
local inflation = tonumber(redis.call('HGET', state_key, 'inflation') or 0)
redis.call('ZADD', ranks_key, inflation + math.min(uses, tonumber(ARGV[16])) * worth, key)
redis.call('HSET', accounts_key, key, ARGV[10] .. ':' .. ARGV[11] .. ':' .. text(uses))
redis.call('HINCRBY', state_key, 'bytes', ARGV[10])
if evicted > 0 then redis.call('HINCRBY', state_key, 'evictions', evicted) end
return {'stored', evicted}
