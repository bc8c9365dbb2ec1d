-- Drop the marks that a whole sweep has made needless. ARGV: 2 those of purges up to this time,
-- 3 and up to this S; then the tags that are kept.
local kept, dropped = {}, 0
for place = 4, #ARGV do kept[ARGV[place]] = true end
for _, tag in ipairs(redis.call('ZRANGE', purged_at_key, '-inf', ARGV[2], 'BYSCORE')) do
  local hard, soft = last_purges({tag})
  local last = math.max(hard, soft)
  if last <= tonumber(ARGV[3]) and not kept[tag] then
    floor = math.max(floor, last)
    redis.call('HDEL', marks_key, tag)
    redis.call('ZREM', purged_at_key, tag)
    dropped = dropped + 1
  end
end
redis.call('HSET', state_key, 'floor', text(floor))
return dropped
