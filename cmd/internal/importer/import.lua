-- Writes one key as the source has it, or says what is there instead.
-- KEYS[1] is the key. ARGV: kind, life in milliseconds (0: no end), mode, offset, the words of the value.
-- Modes: copy; dry (write nothing); part (a large key is there: has it these words?); life (and has it this life?).
-- Replies: 1 written, 0 there already, 2 there already and given a longer life, -1 something else is there.
local key, kind, life, mode = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local there = redis.call('TYPE', key).ok

-- smaller compares decimals as texts: numbers of Lua are exact to 2^53 only.
local function smaller(a, b)
	local minus = string.sub(a, 1, 1) == '-'
	if minus ~= (string.sub(b, 1, 1) == '-') then return minus end
	if minus then a, b = string.sub(b, 2), string.sub(a, 2) end
	if #a ~= #b then return #a < #b end
	return a < b
end

if kind == 'counter' then
	local new = ARGV[5]
	if there == 'string' then
		local old = redis.call('GET', key)
		if #old > 20 or not (old == '0' or string.find(old, '^%-?[1-9]%d*$')) then return -1 end
		if not smaller(old, new) then return 0 end
	elseif there ~= 'none' then
		return -1
	end
	if mode ~= 'dry' then
		if there == 'none' then redis.call('SET', key, new) else redis.call('SET', key, new, 'KEEPTTL') end
	end
	return 1
end

if there == 'none' then
	if mode == 'dry' then return 1 end
	if mode ~= 'copy' then return -1 end
	if kind == 'string' then
		-- With NX and a time to live it is a lock that Holdfast lists.
		if life > 0 then redis.call('SET', key, ARGV[5], 'NX', 'PX', ARGV[2]) else redis.call('SET', key, ARGV[5], 'NX') end
		return 1
	end
	local words = {hash = 'HSET', list = 'RPUSH', set = 'SADD', zset = 'ZADD'}
	redis.call(words[kind], key, unpack(ARGV, 5))
	if life > 0 then redis.call('PEXPIRE', key, ARGV[2]) end
	return 1
end
if there ~= kind then return -1 end

local counts = {string = 'STRLEN', hash = 'HLEN', list = 'LLEN', set = 'SCARD', zset = 'ZCARD'}
local words = #ARGV - 4
if mode ~= 'part' and mode ~= 'life' then
	local count = words
	if kind == 'string' then count = #ARGV[5] elseif kind == 'hash' or kind == 'zset' then count = words / 2 end
	if redis.call(counts[kind], key) ~= count then return -1 end
end

local same = {
	string = function() return redis.call('GET', key) == ARGV[5] end,
	hash = function()
		for i = 5, #ARGV, 2 do
			if redis.call('HGET', key, ARGV[i]) ~= ARGV[i + 1] then return false end
		end
		return true
	end,
	list = function()
		local from = tonumber(ARGV[4])
		local all = redis.call('LRANGE', key, from, from + words - 1)
		for i = 1, words do
			if all[i] ~= ARGV[i + 4] then return false end
		end
		return true
	end,
	set = function()
		for i = 5, #ARGV do
			if redis.call('SISMEMBER', key, ARGV[i]) == 0 then return false end
		end
		return true
	end,
	zset = function()
		for i = 5, #ARGV, 2 do
			local score = redis.call('ZSCORE', key, ARGV[i + 1])
			-- Releases write doubles in different ways.
			if not score or score ~= ARGV[i] and tonumber(score) ~= tonumber(ARGV[i]) then return false end
		end
		return true
	end,
}
if mode ~= 'life' and not same[kind]() then return -1 end
if mode == 'part' or mode == 'dry' then return 0 end

-- Never a shorter life.
local left = redis.call('PTTL', key)
if left >= 0 and life == 0 then
	redis.call('PERSIST', key)
	return 2
elseif left >= 0 and left < life then
	redis.call('PEXPIRE', key, ARGV[2])
	return 2
end
return 0
