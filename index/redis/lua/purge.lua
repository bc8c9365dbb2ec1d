-- ARGV: 2 generation and 3 S of the purge, both '' on the shard that counts purges; 4 '1' for soft;
-- 5 now; 6 more entries than that are not looked at; 7 how many are freed at once; then tags.
local soft, now, max_counted = ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[6])
local number = sequence + 1
if ARGV[2] ~= '' then
  if ARGV[2] ~= generation then
    return redis.error_reply('LOST the purge counters began anew meanwhile')
  end
  number = tonumber(ARGV[3])
end
local tags, asked, indexed = {}, {}, true
for place = 8, #ARGV do
  local tag = ARGV[place]
  tags[#tags + 1], asked[tag] = tag, true
  for _, prefix in ipairs({'model:', 'route:', 'tenant:', 'system:', 'policy:'}) do
    if string.sub(tag, 1, #prefix) == prefix then indexed = false end
  end
end

-- Keys that may be covered, or nil when they are too many.
local function candidates()
  if redis.call('ZCARD', changes_key) <= max_counted then
    return redis.call('ZRANGE', changes_key, 0, -1)
  end
  if not indexed or asked['*'] then return nil end
  local keys = {}
  for _, tag in ipairs(tags) do
    if redis.call('SCARD', tag_key(tag)) > max_counted then return nil end
    for _, key in ipairs(redis.call('SMEMBERS', tag_key(tag))) do keys[#keys + 1] = key end
    if string.sub(tag, 1, 4) == 'key:' then keys[#keys + 1] = string.sub(tag, 5) end
  end
  return keys
end

local function covered(key)
  local found = redis.call('HMGET', entry_key(key), 'generation', 'sequence', 'tags', 'keep_until')
  if not found[1] or tonumber(found[4]) < now then return false end
  if standing(found[1], found[2], found[3]) == 'purged' then return false end
  for _, tag in ipairs(split(found[3])) do
    if asked[tag] then return true end
  end
  return false
end

local matched, freed, keys = -1, 0, candidates()
if keys then
  local seen, hits = {}, {}
  for _, key in ipairs(keys) do
    if not seen[key] and covered(key) then hits[#hits + 1] = key end
    seen[key] = true
  end
  matched = #hits
  if not soft and matched <= tonumber(ARGV[7]) then
    for _, key in ipairs(hits) do freed = freed + free(key) end
  end
end

redis.call('HSET', state_key, 'sequence', text(math.max(sequence, number)))
for _, tag in ipairs(tags) do
  local hard_at, soft_at = last_purges({tag})
  if soft then soft_at = math.max(soft_at, number) else hard_at = math.max(hard_at, number) end
  redis.call('HSET', marks_key, tag, text(hard_at) .. ':' .. text(soft_at))
  redis.call('ZADD', purged_at_key, now, tag)
end
return {generation, text(number), matched, freed}
