-- Live entries, newest first. ARGV: 2 those before this change, or '+inf'; 3 now; 4 how many to
-- look at; 5 model, 6 tenant, 7 scope, each '' for any; then tags, of which one must be there.
-- Answers the change that it has come to, '' at the end; then keys, each with its change.
local upto = ARGV[2] == '+inf' and ARGV[2] or '(' .. ARGV[2]
local page = redis.call('ZRANGE', changes_key, upto, '-inf', 'BYSCORE', 'REV',
  'LIMIT', 0, ARGV[4], 'WITHSCORES')
local now, asked = tonumber(ARGV[3]), {}
for place = 8, #ARGV do asked[ARGV[place]] = true end

local function any_asked(tags)
  if #ARGV < 8 then return true end
  for _, tag in ipairs(split(tags)) do
    if asked[tag] then return true end
  end
  return false
end

local function same(wanted, value) return wanted == '' or wanted == value end

local answer = {#page < 2 * tonumber(ARGV[4]) and '' or page[#page]}
for place = 1, #page, 2 do
  local found = redis.call('HMGET', entry_key(page[place]), 'generation', 'sequence', 'tags',
    'keep_until', 'model', 'tenant', 'scope')
  if found[1] and tonumber(found[4]) >= now and same(ARGV[5], found[5])
    and same(ARGV[6], found[6]) and same(ARGV[7], found[7]) and any_asked(found[3])
    and standing(found[1], found[2], found[3]) ~= 'purged' then
    answer[#answer + 1] = page[place]
    answer[#answer + 1] = page[place + 1]
  end
end
return answer
