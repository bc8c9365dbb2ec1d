local counted = redis.call('HMGET', state_key, 'bytes', 'evictions')
return {redis.call('ZCARD', changes_key), counted[1] or '0', counted[2] or '0', held[3]}
