-- A load like TPC-C, not TPC-C itself: its nine tables and five transactions in the usual mix, no think time, no
-- keying time, no remote payments by name, smaller tables if asked for. Figures are not tpmC.
sysbench.cmdline.options = {
   warehouses = {"number of warehouses", 1},
   items = {"items in the catalogue", 10000},
   customers = {"customers of a district", 300},
   mysql_storage_engine = {"engine of the tables", "innodb"},
}

local DISTRICTS = 10
local rand = sysbench.rand

local TABLES = {
   "warehouse (w_id INT NOT NULL PRIMARY KEY, w_name CHAR(10), w_tax DECIMAL(4,4), w_ytd DECIMAL(14,2))",
   [[district (d_w_id INT NOT NULL, d_id INT NOT NULL, d_name CHAR(10), d_tax DECIMAL(4,4), d_ytd DECIMAL(14,2),
      d_next_o_id INT NOT NULL, PRIMARY KEY (d_w_id, d_id))]],
   [[customer (c_w_id INT NOT NULL, c_d_id INT NOT NULL, c_id INT NOT NULL, c_last VARCHAR(16), c_credit CHAR(2),
      c_discount DECIMAL(4,4), c_balance DECIMAL(14,2), c_ytd DECIMAL(14,2), c_payments INT, c_data VARCHAR(300),
      PRIMARY KEY (c_w_id, c_d_id, c_id), KEY by_name (c_w_id, c_d_id, c_last))]],
   [[payment (p_id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, p_w_id INT, p_d_id INT, p_c_id INT, p_at DATETIME,
      p_amount DECIMAL(8,2), p_data VARCHAR(24))]],
   [[orders (o_w_id INT NOT NULL, o_d_id INT NOT NULL, o_id INT NOT NULL, o_c_id INT, o_at DATETIME, o_carrier INT,
      o_lines INT, PRIMARY KEY (o_w_id, o_d_id, o_id), KEY by_customer (o_w_id, o_d_id, o_c_id, o_id))]],
   "new_order (n_w_id INT NOT NULL, n_d_id INT NOT NULL, n_o_id INT NOT NULL, PRIMARY KEY (n_w_id, n_d_id, n_o_id))",
   [[order_line (l_w_id INT NOT NULL, l_d_id INT NOT NULL, l_o_id INT NOT NULL, l_number INT NOT NULL, l_i_id INT,
      l_quantity INT, l_amount DECIMAL(8,2), l_delivered DATETIME, l_info CHAR(24),
      PRIMARY KEY (l_w_id, l_d_id, l_o_id, l_number))]],
   "item (i_id INT NOT NULL PRIMARY KEY, i_name VARCHAR(24), i_price DECIMAL(6,2), i_data VARCHAR(50))",
   [[stock (s_w_id INT NOT NULL, s_i_id INT NOT NULL, s_quantity INT, s_ytd INT, s_orders INT, s_info CHAR(24),
      s_data VARCHAR(50), PRIMARY KEY (s_w_id, s_i_id))]],
}

local function letters(n) return rand.string(string.rep("@", n)) end

local function fill(con, into, count, row)
   con:bulk_insert_init("INSERT INTO " .. into .. " VALUES")
   for i = 1, count do con:bulk_insert_next(row(i)) end
   con:bulk_insert_done()
end

local function fill_orders(con, w, d)
   local n = sysbench.opt.customers
   fill(con, "orders", n, function(i) return string.format("(%d,%d,%d,%d,NOW(),%d,5)", w, d, i, n + 1 - i, i % 10 + 1) end)
   fill(con, "order_line", n * 5, function(i)
      return string.format("(%d,%d,%d,%d,%d,5,%d.50,NOW(),'%s')", w, d, math.floor((i - 1) / 5) + 1, (i - 1) % 5 + 1,
         rand.uniform(1, sysbench.opt.items), rand.uniform(1, 100), letters(24))
   end)
   local open = math.floor(n * 0.3)
   fill(con, "new_order", open, function(i) return string.format("(%d,%d,%d)", w, d, n - open + i) end)
end

local function fill_warehouse(con, w)
   con:query(string.format("INSERT INTO warehouse VALUES (%d,'w%d',0.1,300000)", w, w))
   fill(con, "stock", sysbench.opt.items, function(i)
      return string.format("(%d,%d,%d,0,0,'%s','%s')", w, i, rand.uniform(10, 100), letters(24), letters(30))
   end)
   for d = 1, DISTRICTS do
      con:query(string.format("INSERT INTO district VALUES (%d,%d,'d%d',0.1,30000,%d)", w, d, d, sysbench.opt.customers + 1))
      fill(con, "customer", sysbench.opt.customers, function(i)
         return string.format("(%d,%d,%d,'NAME%d','GC',0.1,-10,10,1,'%s')", w, d, i, i % 100, letters(200))
      end)
      fill_orders(con, w, d)
   end
end

function prepare()
   local con = sysbench.sql.driver():connect()
   for _, text in ipairs(TABLES) do
      con:query("DROP TABLE IF EXISTS " .. text:match("^%S+"))
      con:query("CREATE TABLE " .. text .. " ENGINE=" .. sysbench.opt.mysql_storage_engine)
   end
   fill(con, "item", sysbench.opt.items, function(i)
      return string.format("(%d,'item %d',%d.99,'%s')", i, i, rand.uniform(1, 99), letters(30))
   end)
   for w = 1, sysbench.opt.warehouses do fill_warehouse(con, w) end
end

function thread_init() con = sysbench.sql.driver():connect() end

local function sql(text, ...) return con:query(string.format(text, ...)) end
local function row(text, ...) return con:query_row(string.format(text, ...)) end
local function rows(text, ...)
   local result, list = con:query(string.format(text, ...)), {}
   for i = 1, result.nrows do list[i] = result:fetch_row()[1] end
   return list
end

local function new_order(w, d, c)
   local tax = row("SELECT c_discount FROM customer WHERE c_w_id=%d AND c_d_id=%d AND c_id=%d", w, d, c)
   local order = tonumber((row("SELECT d_next_o_id FROM district WHERE d_w_id=%d AND d_id=%d FOR UPDATE", w, d)))
   local count, wanted, seen = rand.uniform(5, 15), {}, {}
   sql("UPDATE district SET d_next_o_id=%d WHERE d_w_id=%d AND d_id=%d", order + 1, w, d)
   sql("INSERT INTO orders VALUES (%d,%d,%d,%d,NOW(),NULL,%d)", w, d, order, c, count)
   sql("INSERT INTO new_order VALUES (%d,%d,%d)", w, d, order)
   while #wanted < count do
      local item = rand.uniform(1, sysbench.opt.items)
      if not seen[item] then
         seen[item] = true
         wanted[#wanted + 1] = item
      end
   end
   table.sort(wanted) -- one order of locking for everybody
   for line, item in ipairs(wanted) do
      local price = tonumber((row("SELECT i_price FROM item WHERE i_id=%d", item)))
      local stock = tonumber((row("SELECT s_quantity FROM stock WHERE s_w_id=%d AND s_i_id=%d FOR UPDATE", w, item)))
      local n = rand.uniform(1, 10)
      if stock < n + 10 then stock = stock + 91 end
      sql("UPDATE stock SET s_quantity=%d, s_ytd=s_ytd+%d, s_orders=s_orders+1 WHERE s_w_id=%d AND s_i_id=%d",
         stock - n, n, w, item)
      sql("INSERT INTO order_line VALUES (%d,%d,%d,%d,%d,%d,%.2f,NULL,'%s')", w, d, order, line, item, n, n * price,
         letters(24))
   end
   return tax
end

local function payment(w, d, c)
   local amount = rand.uniform(100, 500000) / 100
   sql("UPDATE warehouse SET w_ytd=w_ytd+%.2f WHERE w_id=%d", amount, w)
   sql("UPDATE district SET d_ytd=d_ytd+%.2f WHERE d_w_id=%d AND d_id=%d", amount, w, d)
   sql([[UPDATE customer SET c_balance=c_balance-%.2f, c_ytd=c_ytd+%.2f, c_payments=c_payments+1
      WHERE c_w_id=%d AND c_d_id=%d AND c_id=%d]], amount, amount, w, d, c)
   sql("INSERT INTO payment (p_w_id, p_d_id, p_c_id, p_at, p_amount, p_data) VALUES (%d,%d,%d,NOW(),%.2f,'%s')", w, d, c,
      amount, letters(20))
end

local function order_status(w, d, c)
   row("SELECT c_balance FROM customer WHERE c_w_id=%d AND c_d_id=%d AND c_id=%d", w, d, c)
   local order = row([[SELECT o_id FROM orders WHERE o_w_id=%d AND o_d_id=%d AND o_c_id=%d
      ORDER BY o_id DESC LIMIT 1]], w, d, c)
   if order then
      rows("SELECT l_i_id FROM order_line WHERE l_w_id=%d AND l_d_id=%d AND l_o_id=%s", w, d, order)
   end
end

local function delivery(w)
   for d = 1, DISTRICTS do
      local order = row([[SELECT n_o_id FROM new_order WHERE n_w_id=%d AND n_d_id=%d
         ORDER BY n_o_id LIMIT 1 FOR UPDATE]], w, d)
      if order then
         sql("DELETE FROM new_order WHERE n_w_id=%d AND n_d_id=%d AND n_o_id=%s", w, d, order)
         local c = row("SELECT o_c_id FROM orders WHERE o_w_id=%d AND o_d_id=%d AND o_id=%s FOR UPDATE", w, d, order)
         sql("UPDATE orders SET o_carrier=%d WHERE o_w_id=%d AND o_d_id=%d AND o_id=%s", rand.uniform(1, 10), w, d, order)
         sql("UPDATE order_line SET l_delivered=NOW() WHERE l_w_id=%d AND l_d_id=%d AND l_o_id=%s", w, d, order)
         local sum = row("SELECT SUM(l_amount) FROM order_line WHERE l_w_id=%d AND l_d_id=%d AND l_o_id=%s", w, d, order)
         -- A locking read may find an order that is younger than this transaction's snapshot, and so is its sum.
         sql("UPDATE customer SET c_balance=c_balance+%s WHERE c_w_id=%d AND c_d_id=%d AND c_id=%s", sum or 0, w, d,
            c or 0)
      end
   end
end

local function stock_level(w, d)
   local next_order = tonumber((row("SELECT d_next_o_id FROM district WHERE d_w_id=%d AND d_id=%d", w, d)))
   row([[SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id=l_w_id AND s_i_id=l_i_id
      WHERE l_w_id=%d AND l_d_id=%d AND l_o_id>=%d AND l_o_id<%d AND s_quantity<15]], w, d, next_order - 20, next_order)
end

function event()
   local w, d = rand.uniform(1, sysbench.opt.warehouses), rand.uniform(1, DISTRICTS)
   local c, kind = rand.uniform(1, sysbench.opt.customers), rand.uniform(1, 100)
   con:query("BEGIN")
   if kind <= 45 then new_order(w, d, c)
   elseif kind <= 88 then payment(w, d, c)
   elseif kind <= 92 then order_status(w, d, c)
   elseif kind <= 96 then delivery(w)
   else stock_level(w, d) end
   con:query("COMMIT")
end

function thread_done() con:disconnect() end
