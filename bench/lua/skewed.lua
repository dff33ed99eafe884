-- Rows of sysbench's table by Zipf's law, the often used ones scattered over the whole table: on each page at most a
-- few rows are hot. The generator is that of Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994).
sysbench.cmdline.options = {
   table_size = {"rows of the table", 100000},
   exponent = {"of Zipf's law, below 1", 0.9},
   change = {"update rows instead of reading them", false},
   mysql_storage_engine = {"engine of the table", "innodb"},
}

-- The sum of 1/k^s for k up to n: the first terms one by one, the others as an integral.
local function zeta(n, s)
   local exact = math.min(n, 10000)
   local sum = 0
   for k = 1, exact do sum = sum + k ^ -s end
   if n > exact then
      sum = sum + (n ^ (1 - s) - exact ^ (1 - s)) / (1 - s) + (n ^ -s - exact ^ -s) / 2
   end
   return sum
end

function thread_init()
   con = sysbench.sql.driver():connect()
   local sql = "SELECT c FROM sbtest1 WHERE id = ?"
   if sysbench.opt.change then sql = "UPDATE sbtest1 SET c = ? WHERE id = ?" end
   statement = con:prepare(sql)
   key = statement:bind_create(sysbench.sql.type.INT)
   text = statement:bind_create(sysbench.sql.type.CHAR, 120)
   if sysbench.opt.change then statement:bind_param(text, key) else statement:bind_param(key) end
   rows, s = sysbench.opt.table_size, sysbench.opt.exponent
   total = zeta(rows, s)
   eta = (1 - (2 / rows) ^ (1 - s)) / (1 - zeta(2, s) / total)
end

local function rank()
   local u = sysbench.rand.uniform_double()
   if u * total < 1 then return 1 end
   if u * total < 1 + 0.5 ^ s then return 2 end
   return 1 + math.floor(rows * (eta * u - eta + 1) ^ (1 / (1 - s)))
end

function event()
   -- A prime, so that no two ranks meet in a row; the product is exact in a double.
   key:set(rank() * 1500450271 % rows + 1)
   if sysbench.opt.change then
      text:set_rand_str(string.rep("###########-", 9) .. "###########")
   end
   statement:execute()
end

function thread_done()
   statement:close()
   con:disconnect()
end
