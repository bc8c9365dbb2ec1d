-- A shard: what stands under one hash tag, and so in one slot. KEYS[1] is its name; every other key
-- is that name with an ending. Scripts are put together by index/redis/scripts.py: this first.
local shard = KEYS[1]
local state_key = shard .. ':state'          -- counters: generation, run, sequence, floor, ...
local marks_key = shard .. ':marks'          -- tag -> 'hard:soft', S of its last purges
local purged_at_key = shard .. ':purged_at'  -- tag by the time of its last purge
local changes_key = shard .. ':changes'      -- key by the number of the change that put it
local deletions_key = shard .. ':deletions'  -- key by the number of the change that freed it
local ranks_key = shard .. ':ranks'          -- key by its rank, see index/eviction.py
local unplaced_key = shard .. ':unplaced'    -- 'space:scope:key' whose vectors are to be taken out
local owed_key = shard .. ':owed'            -- key whose vector is to be put in, by its change
local accounts_key = shard .. ':accounts'    -- key -> 'size:worth:uses'

local NUM_SHARDS = 16
local number_of_shard = tonumber(string.match(shard, '(%d+)}$'))
local MAX_DELETIONS = 1000  -- that the feed remembers, each shard

local function entry_key(key) return shard .. ':entry:' .. key end
local function tag_key(tag) return shard .. ':tag:' .. tag end
local function text(number) return string.format('%.0f', number) end

local function split(list)
  local parts = {}
  for part in string.gmatch(list, '[^,]+') do parts[#parts + 1] = part end
  return parts
end

local function clock_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
