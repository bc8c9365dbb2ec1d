-- KEYS[1]: a lease. ARGV: 2 token, 3 milliseconds, 4 what stands there for a while after a release,
-- 5 '1' when the caller may take it then.
local held = redis.call('GET', KEYS[1])
if held and not (held == ARGV[4] and ARGV[5] == '1') then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
