-- Begin anew under another generation: everything that is stored is void from now on. Generations
-- have an order, and a shard never goes back: what it forgot cannot come into force again.
-- ARGV: 1 run id of the server, 2 the generation, 3 the time in it: the feed begins there.
local before = redis.call('HGET', state_key, 'generation')
if before and before >= ARGV[2] then return before end
redis.call('DEL', marks_key, purged_at_key, deletions_key)
redis.call('HSET', state_key, 'generation', ARGV[2], 'run', ARGV[1], 'sequence', '0',
  'floor', '0', 'forgotten', ARGV[3])
local change = redis.call('HGET', state_key, 'change')
if change then
  redis.call('HSET', state_key, 'change', text(math.max(tonumber(change), tonumber(ARGV[3]))))
end
return ARGV[2]
