-- Space under churn: rows change their length, go, and come back elsewhere; the number of rows stays the same.
sysbench.cmdline.options = {
   rows = {"rows of the table", 100000},
   mysql_storage_engine = {"engine of the table", "innodb"},
}

local function body()
   return sysbench.rand.string(string.rep("@", sysbench.rand.uniform(20, 400)))
end

function prepare()
   local con = sysbench.sql.driver():connect()
   con:query("DROP TABLE IF EXISTS document")
   con:query(string.format([[CREATE TABLE document (id INT NOT NULL PRIMARY KEY, tag INT NOT NULL,
      body VARCHAR(400) NOT NULL, KEY by_tag (tag)) ENGINE=%s]], sysbench.opt.mysql_storage_engine))
   con:bulk_insert_init("INSERT INTO document VALUES")
   for i = 1, sysbench.opt.rows do
      -- Even numbers only: the odd ones are where rows move to.
      con:bulk_insert_next(string.format("(%d, %d, '%s')", i * 2, sysbench.rand.uniform(1, sysbench.opt.rows), body()))
   end
   con:bulk_insert_done()
end

function thread_init() con = sysbench.sql.driver():connect() end

function event()
   local id = sysbench.rand.uniform(1, sysbench.opt.rows) * 2
   if sysbench.rand.uniform(1, 2) == 1 then
      con:query(string.format("UPDATE document SET body = '%s', tag = %d WHERE id IN (%d, %d)", body(),
         sysbench.rand.uniform(1, sysbench.opt.rows), id, id + 1))
   else
      con:query("BEGIN")
      local had = con:query_row("SELECT id FROM document WHERE id IN (" .. id .. ", " .. id + 1 .. ") FOR UPDATE")
      if had then
         con:query("DELETE FROM document WHERE id = " .. had)
         local other = tonumber(had) == id and id + 1 or id
         con:query(string.format("INSERT INTO document VALUES (%d, %d, '%s')", other,
            sysbench.rand.uniform(1, sysbench.opt.rows), body()))
      end
      con:query("COMMIT")
   end
end

function thread_done() con:disconnect() end
