-- ARGV: 2 after, 3 until ('+inf' for all), 4 how many at most of each kind.
local function page(name)
  return redis.call('ZRANGE', name, '(' .. ARGV[2], ARGV[3], 'BYSCORE',
    'LIMIT', 0, ARGV[4], 'WITHSCORES')
end
local state = redis.call('HMGET', state_key, 'change', 'forgotten')
return {text(clock_us()), state[1] or '0', state[2], page(changes_key), page(deletions_key)}
