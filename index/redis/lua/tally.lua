-- KEYS[1]: the shard. ARGV: 2 a name, then fields and what is added to each.
-- Counters that are not of the store's generation: what was learnt outlives its entries.
local tally = KEYS[1] .. ':tally:' .. ARGV[2]
for i = 3, #ARGV, 2 do
  if redis.call('HINCRBY', tally, ARGV[i], ARGV[i + 1]) <= 0 then
    redis.call('HDEL', tally, ARGV[i])
  end
end
return redis.call('HGETALL', tally)
