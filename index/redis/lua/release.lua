-- KEYS[1]: a lease. ARGV: 2 token of the holder, 3 what stands there then, 4 for how many
-- milliseconds.
if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
return 1
