-- ARGV[2]: limit of uses that count for a rank; then keys, each with how often it was served.
local inflation = tonumber(redis.call('HGET', state_key, 'inflation') or 0)
for place = 3, #ARGV, 2 do
  local account = redis.call('HGET', accounts_key, ARGV[place])
  if account then
    local size, worth, uses = string.match(account, '^(%d+):([^:]+):(%d+)$')
    uses = tonumber(uses) + tonumber(ARGV[place + 1])
    local rank = inflation + math.min(uses, tonumber(ARGV[2])) * tonumber(worth)
    redis.call('ZADD', ranks_key, rank, ARGV[place])
    redis.call('HSET', accounts_key, ARGV[place], size .. ':' .. worth .. ':' .. text(uses))
  end
end
return 1
