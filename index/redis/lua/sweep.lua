-- ARGV: 2 after this change, 3 now, 4 how many to look at. Frees what is purged, past its time, or
-- was dropped by Redis itself. Answers how many were freed, the change that it has come to ('' at
-- the end), and the tags whose soft purge still covers something.
local page = redis.call('ZRANGE', changes_key, '(' .. ARGV[2], '+inf', 'BYSCORE',
  'LIMIT', 0, ARGV[4], 'WITHSCORES')
local freed, still_soft = 0, {}
for place = 1, #page, 2 do
  local found = redis.call('HMGET', entry_key(page[place]), 'generation', 'sequence', 'tags',
    'keep_until')
  local now = found[1] and standing(found[1], found[2], found[3]) or 'purged'
  if now == 'purged' or tonumber(found[4]) < tonumber(ARGV[3]) then
    freed = freed + free(page[place])
  elseif now == 'soft_purged' then
    for _, tag in ipairs(split(found[3])) do still_soft[tag] = true end
  end
end
local answer = {freed, #page < 2 * tonumber(ARGV[4]) and '' or page[#page]}
for tag in pairs(still_soft) do answer[#answer + 1] = tag end
return answer
