-- The insert benchmark: sales arrive in order of time and go into three secondary indexes in random order. Once the
-- indexes no longer fit in memory, an engine shows what it does with random changes.
sysbench.cmdline.options = {
   batch = {"rows of one INSERT", 20},
   mysql_storage_engine = {"engine of the table", "innodb"},
}

function prepare()
   local con = sysbench.sql.driver():connect()
   con:query("DROP TABLE IF EXISTS purchase")
   con:query(string.format([[CREATE TABLE purchase (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, sold DATETIME NOT NULL,
      desk INT NOT NULL, customer INT NOT NULL, product INT NOT NULL, price FLOAT NOT NULL, note VARCHAR(60) NOT NULL,
      KEY price_customer (price, customer), KEY desk_price (desk, price, customer), KEY price_sold (price, sold, customer)
      ) ENGINE=%s]], sysbench.opt.mysql_storage_engine))
end

function thread_init() con = sysbench.sql.driver():connect() end

function event()
   local rows = {}
   for i = 1, sysbench.opt.batch do
      rows[i] = string.format("(NOW(), %d, %d, %d, %.2f, '%s')", sysbench.rand.uniform(1, 1000),
         sysbench.rand.uniform(1, 100000), sysbench.rand.uniform(1, 10000), sysbench.rand.uniform(1, 50000) / 100,
         sysbench.rand.string("@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@"))
   end
   con:query("INSERT INTO purchase (sold, desk, customer, product, price, note) VALUES " .. table.concat(rows, ","))
end

function thread_done() con:disconnect() end
