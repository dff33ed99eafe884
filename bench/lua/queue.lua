-- A work queue: each event puts one job at the tail and, in a transaction of its own, takes the one at the head. The
-- table keeps its size; all the churn happens at its two ends, which is what an open snapshot punishes most.
sysbench.cmdline.options = {
   jobs = {"jobs waiting at the start", 1000},
   payload = {"bytes of a job's text", 80},
   mysql_storage_engine = {"engine of the table", "innodb"},
}

local function text() return string.rep("j", sysbench.opt.payload) end

function prepare()
   local con = sysbench.sql.driver():connect()
   con:query("DROP TABLE IF EXISTS job")
   con:query(string.format([[CREATE TABLE job (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, due INT NOT NULL,
      body VARCHAR(255) NOT NULL, KEY by_due (due)) ENGINE=%s]], sysbench.opt.mysql_storage_engine))
   con:bulk_insert_init("INSERT INTO job (due, body) VALUES")
   for i = 1, sysbench.opt.jobs do
      con:bulk_insert_next(string.format("(%d, '%s')", sysbench.rand.uniform(1, 1000000), text()))
   end
   con:bulk_insert_done()
end

function thread_init()
   con = sysbench.sql.driver():connect()
   body = text()
end

function event()
   con:query(string.format("INSERT INTO job (due, body) VALUES (%d, '%s')", sysbench.rand.uniform(1, 1000000), body))
   con:query("BEGIN")
   local id = con:query_row("SELECT id FROM job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")
   if id then con:query("DELETE FROM job WHERE id = " .. id) end
   con:query("COMMIT")
end

function thread_done() con:disconnect() end
