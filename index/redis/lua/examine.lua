-- ARGV[2]: a key; then tags. Answers the snapshot, the record under the key or '', and for each of
-- the tags, and of the entry's own, that was ever purged: the tag, S of its last hard purge, and of
-- its last soft one. Nothing is counted.
local found = redis.call('HMGET', entry_key(ARGV[2]), 'tags', 'record')
local answer = {generation, held[3], found[2] or ''}
local seen = {}

local function add(tag)
  local mark = not seen[tag] and redis.call('HGET', marks_key, tag)
  seen[tag] = true
  if not mark then return end
  local hard, soft = string.match(mark, '(%d+):(%d+)')
  answer[#answer + 1] = tag
  answer[#answer + 1] = hard
  answer[#answer + 1] = soft
end

for place = 3, #ARGV do add(ARGV[place]) end
for _, tag in ipairs(split(found[1] or '')) do add(tag) end
return answer
