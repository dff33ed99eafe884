-- Counters: every event adds one to a row of a small table. Versions pile up on few rows.
sysbench.cmdline.options = {
   rows = {"rows of the table", 1000},
   mysql_storage_engine = {"engine of the table", "innodb"},
}

function prepare()
   local con = sysbench.sql.driver():connect()
   con:query("DROP TABLE IF EXISTS counter")
   con:query(string.format([[CREATE TABLE counter (id INT NOT NULL PRIMARY KEY, n BIGINT NOT NULL, kind INT NOT NULL,
      note CHAR(60) NOT NULL, KEY by_kind (kind)) ENGINE=%s]], sysbench.opt.mysql_storage_engine))
   con:bulk_insert_init("INSERT INTO counter VALUES")
   for i = 1, sysbench.opt.rows do
      con:bulk_insert_next(string.format("(%d, 0, %d, '%s')", i, i, sysbench.rand.string(string.rep("@", 60))))
   end
   con:bulk_insert_done()
end

function thread_init()
   con = sysbench.sql.driver():connect()
   add = con:prepare("UPDATE counter SET n = n + 1 WHERE id = ?")
   key = add:bind_create(sysbench.sql.type.INT)
   add:bind_param(key)
end

function event()
   key:set(sysbench.rand.uniform(1, sysbench.opt.rows))
   add:execute()
end

function thread_done()
   add:close()
   con:disconnect()
end
