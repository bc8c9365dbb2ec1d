-- The counters, as they must be for anything to be believed: made by this very server process.
-- ARGV[1] is the run id of the server that the caller's connection leads to. Counters that vanished,
-- came with a backup, or were copied from another server do not carry it.
local held = redis.call('HMGET', state_key, 'generation', 'run', 'sequence', 'floor')
local generation, sequence, floor = held[1], tonumber(held[3]), tonumber(held[4])
if not generation or held[2] ~= ARGV[1] then
  return redis.error_reply('LOST the purge counters are missing, or of another server')
end

-- S of the last hard and the last soft purge of any of these tags.
local function last_purges(tags)
  local hard, soft = 0, 0
  for _, mark in ipairs(redis.call('HMGET', marks_key, unpack(tags))) do
    if mark then
      local at_hard, at_soft = string.match(mark, '(%d+):(%d+)')
      hard, soft = math.max(hard, tonumber(at_hard)), math.max(soft, tonumber(at_soft))
    end
  end
  return hard, soft
end

-- `tags`: as the entry holds them, the two that go without saying among them.
local function standing(of_generation, of_sequence, tags)
  local seen = tonumber(of_sequence)
  if of_generation ~= generation or seen > sequence then return 'purged' end
  if seen == sequence then return 'fresh' end
  local hard, soft = last_purges(split(tags))
  if hard > seen then return 'purged' end
  if soft > seen then return 'soft_purged' end
  return 'fresh'
end
