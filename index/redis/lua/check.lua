-- What adds up: AssertionError in Python unless all of it is equal.
local entries, bytes = redis.call('ZCARD', changes_key), 0
local accounts = redis.call('HVALS', accounts_key)
for _, account in ipairs(accounts) do
  bytes = bytes + tonumber(string.match(account, '^%d+'))
end
return {entries, #accounts, redis.call('ZCARD', ranks_key), text(bytes),
  redis.call('HGET', state_key, 'bytes') or '0',
  redis.call('ZINTERCARD', 2, changes_key, deletions_key)}
