-- ARGV[2]: a key; ARGV[3]: number of the change that put what the caller holds under it, or ''.
-- The record is only sent when the caller does not hold it.
local name = entry_key(ARGV[2])
local found = redis.call('HMGET', name, 'generation', 'sequence', 'tags', 'change')
if not found[1] then return {generation, held[3], 'absent'} end
local now = standing(found[1], found[2], found[3])
if now == 'purged' then return {generation, held[3], now} end
if found[4] == ARGV[3] then return {generation, held[3], now, found[4]} end
return {generation, held[3], now, found[4], redis.call('HGET', name, 'record')}
