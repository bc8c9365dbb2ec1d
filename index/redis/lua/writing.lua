-- Change numbers are the server's time in microseconds, in steps that leave room for the number of
-- the shard: none comes twice in the store, and the changes of all shards have one order.
local function next_change()
  local last = tonumber(redis.call('HGET', state_key, 'change') or 0)
  local step = math.max(math.floor(clock_us() / NUM_SHARDS), math.floor(last / NUM_SHARDS) + 1)
  local change = text(step * NUM_SHARDS + number_of_shard)
  redis.call('HSET', state_key, 'change', change)
  return change
end

local function log_deletion(key)
  redis.call('ZADD', deletions_key, next_change(), key)
  local excess = redis.call('ZCARD', deletions_key) - MAX_DELETIONS
  if excess > 0 then
    local gone = redis.call('ZPOPMIN', deletions_key, excess)
    redis.call('HSET', state_key, 'forgotten', gone[#gone])
  end
end

-- Free an entry without a word in the feed; its uses, or nil when there was none.
local function take_out(key)
  local account = redis.call('HGET', accounts_key, key)
  if not account then return nil end
  local size, uses = string.match(account, '^(%d+):[^:]+:(%d+)$')
  local found = redis.call('HMGET', entry_key(key), 'indexed', 'space', 'scope')
  if found[2] and found[2] ~= '' then
    redis.call('RPUSH', unplaced_key, found[2] .. ':' .. found[3] .. ':' .. key)
  end
  for _, tag in ipairs(split(found[1] or '')) do redis.call('SREM', tag_key(tag), key) end
  redis.call('DEL', entry_key(key))
  redis.call('HDEL', accounts_key, key)
  redis.call('ZREM', changes_key, key)
  redis.call('ZREM', ranks_key, key)
  redis.call('ZREM', owed_key, key)
  redis.call('HINCRBY', state_key, 'bytes', -tonumber(size))
  return tonumber(uses)
end

local function free(key)
  if not take_out(key) then return 0 end
  log_deletion(key)
  return 1
end
